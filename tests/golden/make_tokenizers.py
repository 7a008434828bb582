#!/usr/bin/env python3
# make_tokenizers.py - writes tests/golden/tokenizers/: small tokenizers of real layouts.
#
#   tests/golden/make_tokenizers.py
#
# Needs the package `tokenizers` (0.23.3 made the present files); the build does not. Each
# LAYOUT.json is a tokenizer of that layout, trained on the text below; cases.json holds texts and,
# for each layout, their tokens: plain, and with the template around them.
"""Makes the tokenizers that the tests read, and the tokens they must find."""
import json
import pathlib
import unicodedata

import layouts
from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers import pre_tokenizers as pre
from tokenizers import trainers

HERE = pathlib.Path(__file__).resolve().parent
VOCAB = 700

PROSE = [
    "In the beginning there was one machine, and it trained alone; it's what we'd call a start.",
    "They don't wait for each other: a slow machine's work counts, and so does a fast one's.",
    "Wir rechnen, was wir können; größere Übungen müssen später folgen, daß es hält.",
    "Le modèle s'entraîne à plusieurs, déjà, où l'été ça dépend de l'âge des données.",
    "Обучение идёт на многих машинах, и ни одна из них не ждёт другую.",
    "Η εκπαίδευση γίνεται σε πολλές μηχανές, και καμία δεν περιμένει.",
    "多くの計算機が一つのモデルを学習する。遅い機械も役に立つ。",
    "许多机器一起训练一个模型，没有谁等待谁。",
    "여러 컴퓨터가 하나의 모델을 함께 학습합니다.",
    "النموذج يتعلم على أجهزة كثيرة، ولا ينتظر أحد أحدا.",
    "כמה מחשבים לומדים יחד, ואיש אינו מחכה.",
    "कई मशीनें एक मॉडल को मिलकर सिखाती हैं।",
    "เครื่องจำนวนมากฝึกแบบจำลองเดียวกัน",
    "Nhiều máy cùng huấn luyện một mô hình, không máy nào phải chờ.",
]
CODE = """
int main(int argc, char **argv) {
    for (size_t i = 0; i < count; i++) {
        if (values[i] != 0x1F && !is_done) total += values[i] * 1000;
    }
\treturn total == 12345 ? 0 : 1; /* 3.14159e-10 */
}

def encode(self, text: str, *, plain=False) -> list[int]:
    return [self.vocab[word] for word in self.split(text)]  # 2026-11-21
"""
EDGES = [
    "", " ", "  ", "\n", "a", " a", "a ", "  a  b   c\n\n\n  d\t\te \r\n f",
    "I'm you're he'S we'LL they'VE 'tis o'clock x'd 'Re 'M'm ''s",
    "1 12 123 1234 12345 a1b2 \u0663\u0664\u0665 \u00bd \u2167 3.14 1,000,000 x\u00b2",
    "tabs\t\ttabs \t mixed\u00a0nbsp\u2003em"
    "\u2028line\u2029par\u0085nel\u180esep\u200bzero\u3000wide",
    "\u0301alone e\u0301 \u00e9 \u1e9b\u0323 "
    "\u212b \uac01 \u1100\u1161\u11a8 \u0958 \ufb01 \u2126",
    "\U0001F468\u200D\U0001F469\u200D\U0001F467 \U0001F1E9\U0001F1EA "
    "\U0001F44D\U0001F3FD \u2764\uFE0F",
    "(((a+b)*c)-d)/e == f && !g || h<<=2; \"quoted\" `tick` #tag @name $5 %d ^_^ ~/.x {y} [z]|",
    "don\u2019t \u201cquote\u201d \u2014 dash\u2026 'S 's\u017f '\u017f",
    "<|endoftext|>a<|endoftext|> b <|im_start|>user\nhi<|im_end|> <think>no</think> <repo_name>x",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|end_of_text|>",
    "<|endoftext| <|im_start <<|eot_id|>> <|endoftext|><|endoftext|>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "th" * 38 + "ethethetheinging",
    " " * 92 + "x",
    "\u0000\u0001\u001f\u007f\u0080\u00ad\ufeff\ufffd\U0010ffff\ue000",
    "start MASK  [A] x[A]y [B]   z [C] w[C] [D]\u00e9 [D]e\u0301 [E][E] MASKED UNMASK MASK.",
]


def flags():
    """Added tokens of all kinds, and a space before every text."""
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre.ByteLevel(add_prefix_space=True)
    added = [AddedToken("MASK", single_word=True), AddedToken("[A]", lstrip=True),
             AddedToken("[B]", rstrip=True), AddedToken("[C]", lstrip=True, rstrip=True),
             AddedToken("[D]\u00e9", normalized=True), AddedToken("[E]", normalized=False),
             AddedToken("[E][E]", normalized=False), AddedToken(" w", normalized=False),
             AddedToken("<|endoftext|>", special=True, normalized=False)]
    return tok, [], added


def train_flags(texts):
    tok, _, added = flags()
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=300, show_progress=False, initial_alphabet=pre.ByteLevel.alphabet()))
    for token in added:
        (tok.add_special_tokens if token.special else tok.add_tokens)([token])
    return tok


def write(name, tok):
    """Writes compact JSON; GPT-2's merges in the format used before 2024."""
    parts = json.loads(tok.to_str())
    if name == "gpt2":
        parts["model"]["merges"] = [" ".join(pair) for pair in parts["model"]["merges"]]
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    (HERE / "tokenizers" / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def main():
    texts = PROSE + EDGES + [CODE, " ".join(PROSE[:4]), unicodedata.normalize("NFD", PROSE[-1])]
    trained = (PROSE + CODE.splitlines()) * 3 + EDGES
    found = {"texts": texts, "plain": {}, "template": {}}
    (HERE / "tokenizers").mkdir(exist_ok=True)
    for name in [*layouts.LAYOUTS, "flags"]:
        tok = train_flags(trained) if name == "flags" else layouts.train(name, trained, VOCAB)
        write(name, tok)
        for kind in ("plain", "template"):
            found[kind][name] = [
                tok.encode(text, add_special_tokens=kind == "template").ids for text in texts]
        if found["plain"][name] == found["template"][name]:
            del found["template"][name]
    text = json.dumps(found, separators=(",", ":"))
    (HERE / "tokenizers" / "cases.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
