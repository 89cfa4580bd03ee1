import sys

from mepg.cli import main

sys.exit(main())
