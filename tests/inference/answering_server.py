"""Has imported everything, and runs `albert` in forked children: a start costs milliseconds, a death is no less one.

Reads lines of JSON, the words of a command each; writes the child's number, and when it has ended its exit code.
"""

import json
import os
import sys

from albert.cli import main, predict
from albert.inference import files as file_prediction

assert predict and file_prediction
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os._exit(main.run(json.loads(line)))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
