#!/usr/bin/env python3
# finetune_lora.py - adapters over a model of Hugging Face, trained by several nodes.
"""Fine-tunes LoRA adapters of a model's folder on chats or a text, on several machines.

On the first machine, which prints a ticket, and on the others:

    python3 finetune_lora.py --model FOLDER --chat FILE --create NAME --tokens 10m --out tuned
    python3 finetune_lora.py --model FOLDER --chat FILE --join tw1... --out tuned

All load the same model, and only adapters are sent. At the end each has the same adapters in OUT,
as peft saves them. The line that a script for one machine lacks is marked.
"""
import argparse
import pathlib
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForSeq2Seq, Trainer,
                          TrainerCallback, TrainingArguments)

from thinwire import data
from thinwire.transformers import NodeCallback  # Thinwire

HELDOUT = 8  # rows


def chats(tokenizer: Any, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Conversations by the chat template in the model's folder; answers have labels."""
    template = data.ChatTemplate(pathlib.Path(args.model))
    rows = []
    for path in data.files_of([args.chat]):
        for _, record in data.records(path):
            ids, labels = data.encode(data.conversation(template, record), tokenizer)
            if any(label != -100 for label in labels[1:args.context]):
                rows.append({"input_ids": ids[:args.context], "labels": labels[:args.context]})
    return rows


def windows(tokenizer: Any, args: argparse.Namespace) -> list[dict[str, Any]]:
    """A text, cut into windows."""
    text = pathlib.Path(args.text).read_text(encoding="utf-8")
    tokens = tokenizer(text)["input_ids"]
    cuts = range(0, len(tokens) - args.context + 1, args.context)
    return [{"input_ids": tokens[i:i + args.context], "labels": tokens[i:i + args.context]}
            for i in cuts]


class Rounds(TrainerCallback):
    """Prints the bytes of a round now and then."""

    def __init__(self) -> None:
        self.node: Any = None

    def begin(self, node: Any) -> None:
        """Prints a ticket, on the machine that made the run."""
        self.node = node
        print(f"run {node.run.name}, {node.run.parameters:,} parameters of adapters")
        if node.home is not None and node.home.facts()["created"]:
            print("ticket:", node.invite(uses=15), flush=True)

    def on_log(self, *_: Any, **__: Any) -> None:
        """Prints."""
        status = self.node.home.status() if self.node and self.node.home else None
        if status is not None and status["sync"]["rounds_committed"] > 0:
            rounds, moved = status["sync"]["rounds_committed"], status["network"]
            print(f"{rounds:,} rounds, {moved['bulk_out_bytes'] / rounds:,.0f} bytes up and "
                  f"{moved['bulk_in_bytes'] / rounds:,.0f} down a round", flush=True)


def number(text: str) -> int:
    """A number such as 10m."""
    scale = {"k": 10**3, "m": 10**6, "b": 10**9}.get(text[-1:].lower(), 1)
    return int(float(text if scale == 1 else text[:-1]) * scale)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True, help="folder of the base model")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--chat", help="file or folder of conversations, as thinwire.data reads")
    source.add_argument("--text", help="text to train on")
    run = parser.add_mutually_exclusive_group(required=True)
    run.add_argument("--create", metavar="NAME", help="make a run")
    run.add_argument("--join", metavar="TICKET", help="join one")
    parser.add_argument("--tokens", type=number, help="budget of the run that is made")
    parser.add_argument("--batch", type=int, default=4, help="rows of a step")
    parser.add_argument("--context", type=int, default=512, help="longest row, in tokens")
    parser.add_argument("--rate", type=float, default=2e-4, help="learning rate")
    parser.add_argument("--rank", type=int, default=16, help="of the adapters")
    parser.add_argument("--listen", help="address and port for the other nodes")
    parser.add_argument("--out", metavar="FOLDER", default="tuned", help="for the adapters")
    args = parser.parse_args()
    if args.create and args.tokens is None:
        parser.error("--create needs --tokens, the budget of all nodes")
    return args


def main() -> None:
    """Trains until the run is over, and saves the adapters."""
    args = arguments()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    rows = (chats if args.chat else windows)(tokenizer, args)
    base = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(r=args.rank, lora_alpha=2 * args.rank,
                                            target_modules="all-linear", task_type="CAUSAL_LM"))
    trainer = Trainer(
        model=model, train_dataset=rows[HELDOUT:], eval_dataset=rows[:HELDOUT],
        data_collator=DataCollatorForSeq2Seq(tokenizer),
        args=TrainingArguments(output_dir=args.out, per_device_train_batch_size=args.batch,
                               learning_rate=args.rate, lr_scheduler_type="constant_with_warmup",
                               warmup_steps=20, max_steps=10**9, save_strategy="no",
                               logging_steps=50, report_to="none", disable_tqdm=True))
    rounds = Rounds()
    trainer.add_callback(rounds)
    options = {"create": args.create, "tokens": args.tokens,
               "step_tokens": args.batch * args.context} if args.create else {"join": args.join}
    trainer.add_callback(NodeCallback(trainer, listen=args.listen, on_node=rounds.begin,
                                      **options))  # Thinwire
    trainer.train()
    model.save_pretrained(args.out)


if __name__ == "__main__":
    main()
