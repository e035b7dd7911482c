"""Numbers in prose and where they come from: reading them, and comparing them.

A number that a reader meets in the text has to be on the page already, computed: some
output, or some literal of a code cell, must round to it. "About 0.69" is fine beside an
output 0.6931; 0.68 is not.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from tests.book.chapters import Cell, blocks, texts

# What the field defines is nobody's measurement: the base of the frequencies.
DEFINED = [Decimal(10000)]
YEARS = range(1950, 2031)

SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
SPACES = "\u00a0\u2009\u202f"  # no-break, thin, narrow no-break

# Text that only looks like a number: what is removed before numbers are read.
NOT_A_CLAIM = re.compile(
    r"""
    \{(?:ref|numref|eq|cite|doc|prf|term|func|class|meth|mod|download|label)
        [\w:]*\}`[^`]*`                                     # roles
    | ^\s*:[\w-]+:\s*[\w./-]*$                              # directive options
    | ^\(\S+\)=$                                            # labels
    | \]\([^)]*\) | https?://\S+ | doi:\S+ | arXiv:\S+      # links
    | (?:[Ss]ections?|[Tt]ables?|[Ff]igures?|[Ee]q(?:uation|s?\.)|[Cc]hapters?|§)
        [\s~]*\d+(?:\.\d+)*                                 # places in a cited work
    | v?\d+\.\d+\.\d+\S*                                    # versions
    | (?<!\w)\#\d+                                          # issue numbers
    """,
    re.VERBOSE | re.MULTILINE,
)

NUMBER = re.compile(
    r"""
    (?<![\w.])                                  # not the 32 of float32
    (?P<digits>
        \d{1,3}(?:,\d{3})+ (?:\.\d+)?           # 60,611
        | \d{1,3}(?:[\ _]\d{3})+ (?:\.\d+)?     # 60 611
        | \d+(?:_\d+)* (?:\.\d+)?               # 60611, 0.5
        | \.\d+
    )
    (?:
        [eE](?P<exponent>[-+]?\d+)              # 1e-4
        | \s*(?:×|\\times|\\cdot|·)\s*10\^?\{?(?P<power>[-+]?\d+)\}?
    )?
    (?P<percent>\s?\\?%)?
    """,
    re.VERBOSE,
)
POWER_OF_TEN = re.compile(r"(?<![\w.])10\^?\{?(?P<power>(?<=[\^{])-?\d+|-\d+)\}?")


@dataclass(frozen=True)
class Number:
    """A number as written: its value and the unit of its last significant place."""

    written: str
    value: Decimal
    unit: Decimal
    is_percent: bool = False
    is_magnitude: bool = False  # 10⁻⁷ alone

    @property
    def is_claim(self) -> bool:
        """Whether it must come from somewhere: a fraction, or three digits or more."""
        if self.value == int(self.value) and int(self.value) in YEARS:
            return "." in self.written
        return "." in self.written or self.value >= 100 or self.unit < 1

    def is_rounding_of(self, source: Decimal) -> bool:
        """Whether `source`, rounded to this number's last place, gives this number.

        A power of ten alone, "some 10⁻⁷", stands for 2e-7 and 8e-7 too.
        """
        if self.is_magnitude:
            return self.value <= 2 * abs(source) and abs(source) < 10 * self.value
        scales = (1, 100) if self.is_percent else (1,)
        # a half in the last place may go either way, and prints are rounded themselves
        room = self.unit * Decimal("0.5000001")
        return any(abs(abs(source) * scale - self.value) <= room for scale in scales)


def tidy(text: str) -> str:
    """One way to write what has many: thin spaces, LaTeX separators, exponents."""
    for space in (*SPACES, "\\,", "\\ ", "~"):
        text = text.replace(space, " ")
    text = text.replace("{,}", ",").replace("−", "-")
    return re.sub(r"10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", spelled_exponent, text)


def spelled_exponent(match: re.Match[str]) -> str:
    """10⁻⁴ -> 10^-4."""
    return f"10^{match[1].translate(SUPERSCRIPTS)}"


def read_numbers(text: str) -> Iterator[Number]:
    """All numbers of `text`; see `Number.is_claim` for those that need a source."""
    text = tidy(text)
    for match in POWER_OF_TEN.finditer(NUMBER.sub(blank_product, text)):
        power = Decimal(1).scaleb(int(match["power"]))
        yield Number(match[0], power, power, is_magnitude=power < 1)
    for match in NUMBER.finditer(text):
        digits = re.sub(r"[,_ ]", "", match["digits"])
        exponent = int(match["exponent"] or match["power"] or 0)
        value = Decimal(digits).scaleb(exponent)
        unit = last_place(digits).scaleb(exponent)
        yield Number(match[0].strip(), value, unit, bool(match["percent"]))


def blank_product(match: re.Match[str]) -> str:
    """The power in 3 × 10^-7 belongs to the 3; a 10^-7 alone stays."""
    return " " if match["power"] else match[0]


def last_place(digits: str) -> Decimal:
    """0.01 for 3.14, 1 for 512, 1000 for 61000: ending zeros may be a rounding.

    At least two digits count, so that 1000 does not stand for everything near it.
    """
    if "." in digits:
        return Decimal(1).scaleb(-len(digits.split(".")[1]))
    significant = digits.rstrip("0")
    zeros = len(digits) - max(len(significant), 2)
    return Decimal(1).scaleb(zeros) if len(significant) >= 2 else Decimal(1)


# ── where numbers may come from ──────────────────────────────────────────────────


def output_values(cell: Cell) -> Iterator[Decimal]:
    """Numbers that the cell printed or returned."""
    for output in cell.outputs:
        for text in texts(output):
            plain = re.sub(r"<style.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL)
            yield from (number.value for number in read_numbers(plain))


def code_values(cell: Cell) -> Iterator[Decimal]:
    """Number literals of the cell's code, and constant arithmetic such as 2 ** 20.

    Comments and strings are prose: they prove nothing.
    """
    code = "\n".join("" if is_magic(line) else line for line in cell.lines)
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.NUMBER and not token.string.endswith(("j", "J")):
            yield Decimal(str(ast.literal_eval(token.string)))
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.BinOp):
            yield from constant(node)


def is_magic(line: str) -> bool:
    """IPython's own lines, %timeit and !ls, are not Python."""
    return line.lstrip().startswith(("%", "!"))


def constant(node: ast.BinOp) -> Iterator[Decimal]:
    """The value of arithmetic on literals; nothing when a name takes part."""
    allowed = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)
    if not all(isinstance(part, allowed) for part in ast.walk(node)):
        return
    try:
        value = eval(compile(ast.Expression(node), "literal", "eval"))
        yield Decimal(str(value))
    except (ArithmeticError, TypeError, ValueError):
        return


def sources(cells: Iterable[Cell]) -> set[Decimal]:
    """Every value that the prose of these cells may quote."""
    code = [cell for cell in cells if cell.kind == "code"]
    printed = {value for cell in code for value in output_values(cell)}
    written = {value for cell in code for value in code_values(cell)}
    return printed | written | set(DEFINED)


# ── what the reader reads ────────────────────────────────────────────────────────


def claims(cell: Cell) -> Iterator[tuple[Number, str]]:
    """Numbers that need a source, each with the line that states it."""
    for line in stated_lines(cell):
        for number in read_numbers(NOT_A_CLAIM.sub(" ", line)):
            if number.is_claim:
                yield number, line


def stated_lines(cell: Cell) -> Iterator[str]:
    """Text, captions and alternative texts; code in the text is no statement."""
    if cell.kind == "markdown":
        for block in blocks(cell.source):
            if not block.inside or not block.inside[-1].startswith("```"):
                yield from block.lines
    shown = cell.metadata.get("mystnb", {})
    yield str(shown.get("figure", {}).get("caption", ""))
    yield str(shown.get("image", {}).get("alt", ""))
