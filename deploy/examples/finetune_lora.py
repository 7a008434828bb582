#!/usr/bin/env python3
# finetune_lora.py - adapters over a model of Hugging Face, trained by several nodes.
"""Fine-tunes LoRA adapters with transformers' Trainer as the worker of a Thinwire node.

Save the first adapters, make the run from them, and run this beside each node:

    python3 finetune_lora.py --model FOLDER --text FILE --first first
    thinwire run new NAME --tensors first/adapter_model.safetensors --train '*lora_*' \\
        --base FOLDER --batch 4 --context 64 --tokens 10m
    python3 finetune_lora.py --model FOLDER --text FILE --socket RUN_DIR/worker.sock --out tuned

The two lines that a script for one machine lacks are marked.
"""
import argparse
import pathlib

import torch
from peft import LoraConfig, get_peft_model
from transformers import (AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments,
                          default_data_collator)

from thinwire.transformers import NodeCallback  # Thinwire


def windows(tokenizer: AutoTokenizer, text: str, context: int) -> list[dict[str, torch.Tensor]]:
    """Cuts a text into windows of `context` tokens."""
    tokens = torch.tensor(tokenizer(text)["input_ids"])
    cut = tokens[:len(tokens) // context * context].view(-1, context)
    return [{"input_ids": window, "labels": window} for window in cut]


def main() -> None:
    """Trains until the run is over, and saves the adapters."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="folder of the base model")
    parser.add_argument("--text", required=True, help="text to train on")
    parser.add_argument("--first", metavar="FOLDER", help="only write the untrained adapters")
    parser.add_argument("--socket", help="the daemon's worker socket")
    parser.add_argument("--out", metavar="FOLDER", default="tuned", help="for the adapters")
    args = parser.parse_args()

    base = AutoModelForCausalLM.from_pretrained(args.model)
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn"],
                                            fan_in_fan_out=True, task_type="CAUSAL_LM"))
    if args.first:
        model.save_pretrained(args.first)
        return
    text = pathlib.Path(args.text).read_text(encoding="utf-8")
    data = windows(AutoTokenizer.from_pretrained(args.model), text, 64)
    trainer = Trainer(
        model=model, train_dataset=data[8:], eval_dataset=data[:8],
        data_collator=default_data_collator,
        args=TrainingArguments(output_dir=args.out, per_device_train_batch_size=4,
                               max_steps=10**9, save_strategy="no", report_to="none",
                               disable_tqdm=True))
    trainer.add_callback(NodeCallback(trainer, socket=args.socket, lr="run"))  # Thinwire
    trainer.train()
    model.save_pretrained(args.out)


if __name__ == "__main__":
    main()
