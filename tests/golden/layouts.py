"""Layouts of four families' tokenizer.json, for the scripts that train small ones in them."""
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers as pre
from tokenizers import processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def bare_byte_level():
    return pre.ByteLevel(add_prefix_space=False, use_regex=False)


def gpt2():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    return tok, [AddedToken("<|endoftext|>", special=True, normalized=True)], []


def llama3():
    tok = Tokenizer(models.BPE(ignore_merges=True))
    tok.pre_tokenizer = pre.Sequence([pre.Split(Regex(LLAMA3), "isolated"), bare_byte_level()])
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
             "<|eot_id|>"]
    return tok, [], [AddedToken(name, special=True, normalized=False) for name in names]


def qwen2():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre.Sequence([pre.Split(Regex(QWEN2), "isolated"), bare_byte_level()])
    tok.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return tok, [], [AddedToken(name, special=True, normalized=False) for name in names] + [
        AddedToken("<think>", special=False, normalized=False)]


def smollm():
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True),
                                      pre.ByteLevel(add_prefix_space=False)])
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
    return tok, [AddedToken(name, special=True, normalized=False) for name in names], []


LAYOUTS = {"gpt2": gpt2, "llama3": llama3, "qwen2": qwen2, "smollm": smollm}


def train(name, texts, vocab):
    """A tokenizer of the layout, with `vocab` tokens besides those added after the training."""
    tok, first, last = LAYOUTS[name]()
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=first, show_progress=False,
                                  initial_alphabet=pre.ByteLevel.alphabet())
    tok.train_from_iterator(texts, trainer)
    for token in last:
        (tok.add_special_tokens if token.special else tok.add_tokens)([token])
    if name == "llama3":
        begin = "<|begin_of_text|>"
        tok.post_processor = processors.Sequence([
            processors.ByteLevel(add_prefix_space=True, trim_offsets=False),
            processors.TemplateProcessing(single=f"{begin} $A", pair=f"{begin} $A {begin} $B:1",
                                          special_tokens=[(begin, tok.token_to_id(begin))])])
    return tok
