"""A note on a config: a sentence that also says of which sort it is, and how grave."""

from __future__ import annotations

from pe_lab import refuse

SORTS = ("assumed", "derived", "legacy", "ignored", "contradiction", "not expressed")
SEVERITIES = ("note", "risky", "wrong")


class Note(str):
    """A sentence about a config, which can be asked what it is about.

    Args:
        text: the sentence.
        sort: "derived" from what the config says; "assumed" where it says nothing;
            "legacy", an old name; "ignored", a key without effect; "contradiction", of
            two keys of which one counts; "not expressed" by the encoding.
        severity: "note", or what it may do to the numbers: "risky", if they may not be
            those that the config's author meant; "wrong", if they are not.
        key: the key that it is about, "" if it is about none.

    Raises:
        ValueError: for another sort or severity.

    Example:
        >>> config = {"model_type": "llama", "head_dim": 8, "rotary_dim": 4}
        >>> note = pe_lab.hf.from_config(config).notes[0]
        >>> note.sort, note.severity, note.key
        ('ignored', 'wrong', 'partial_rotary_factor')
    """

    sort: str
    severity: str
    key: str

    def __new__(
        cls, text: str, sort: str = "derived", severity: str = "note", key: str = ""
    ) -> Note:
        """A text that keeps the three words beside it."""
        note = super().__new__(cls, text)
        note.sort = refuse.one_of("sort", sort, SORTS)
        note.severity = refuse.one_of("severity", severity, SEVERITIES)
        note.key = key
        return note

    def __reduce__(self) -> tuple[type[Note], tuple[str, ...]]:
        """What copies and pickles are made of."""
        return Note, (str(self), self.sort, self.severity, self.key)
