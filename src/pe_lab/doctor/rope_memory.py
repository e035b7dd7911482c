"""memory"""

from pe_lab.doctor.kind import Check

CHECKS: tuple[Check, ...] = ()
