"""The campaign observes runs by /proc and memfd, which only Linux has."""

import sys

collect_ignore_glob = [] if sys.platform == "linux" else ["*"]
