"""`python -m pe_lab.doctor.peers`: examine the installed libraries again."""

import sys

from pe_lab.doctor.peers import main

sys.exit(main())
