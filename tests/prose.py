"""Two rules of CONTRIBUTING.md about prose, as patterns: every *who* has a noun before it, and
*what* opens a question. Used by tidy.py."""
import re

# Uses of "what" outside of questions, in the whole tree. The number may only fall.
WHATS = 114

C_PROSE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
SCRIPT_PROSE = re.compile(r'"""(.*?)"""|(?:^|(?<=\s))#[^\n]*', re.S)
C_CODE = (".c", ".h", ".cu", ".cuh")
SCRIPTS = (".py", ".sh", ".cmake", "CMakeLists.txt")
CODE_SPAN = re.compile(r"```.*?```|`[^`\n]*`|^    [^\n]*", re.S | re.M)

WHO = re.compile(r"(?:(?P<before>[\w`)*]+)[\"']?\s+)?(?:\*\s+|#\s+)?\b(?P<who>who|whom|whoever)\b",
                 re.I)
WHAT = re.compile(r"\bwhat(?:ever)?\b", re.I)
# Words that are no noun, or begin a sentence.
NO_NOUN = set("""a and are as at be because but by for from if in into is it not of on or than that
    the then there this to was were when where which while with without""".split())


def blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def prose_of(path, text):
    """The text of a file with everything but prose blanked: comments, messages, documents."""
    if path.endswith(".md"):
        return CODE_SPAN.sub(blank, text)
    if path.endswith(C_CODE):
        pattern = C_PROSE
    elif path.endswith(SCRIPTS) or text.startswith("#!"):
        pattern = SCRIPT_PROSE
    else:
        return ""
    prose, end = [], 0
    for match in pattern.finditer(text):
        prose += [re.sub(r"[^\n]", " ", text[end:match.start()]), match[0]]
        end = match.end()
    return "".join(prose)


def is_question(prose, place):
    """Whether the sentence around a place ends with a question mark."""
    end = re.compile(r"[?.;]|\*/|\n\s*\n").search(prose, place)
    return end is not None and end[0] == "?"


def headless_whos(path, text):
    """(line, word) of each *who* without a noun."""
    prose = prose_of(path, text)
    for match in WHO.finditer(prose):
        before = (match["before"] or "").strip("`)*").lower()
        is_quoted = prose[match.start("who") - 1:match.start("who")] in ("*", "`")
        is_headless = not before or before in NO_NOUN or match["who"].lower() == "whoever"
        if is_headless and not is_quoted and not is_question(prose, match.start("who")):
            yield prose.count("\n", 0, match.start("who")) + 1, match["who"]


def count_whats(path, text):
    """Uses of *what* outside of questions."""
    prose = prose_of(path, text)
    return sum(not is_question(prose, match.start()) for match in WHAT.finditer(prose))
