"""The arbiter of one machine: started by a server (``STATE LOCK``), or by an administrator (`standalone`)."""

import sys

from . import arbiter, standalone

by_a_server = len(sys.argv) == 3 and sys.argv[2].isdecimal()
sys.exit((arbiter if by_a_server else standalone).main(sys.argv[1:]))
