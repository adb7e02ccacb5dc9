"""What is promised, in the words of the table in docs/promises.md; a trial names the one that it puts to the proof."""

KILL_IT_ANY_TIME = (
    "Kill it any time: writes survive `kill -9` and a lost disk cache, and the run that goes on from the last "
    "checkpoint ends with the same bytes (same machine, torch, threads and processes)."
)
NO_WRONG_LOAD = "No wrong load: a file that is damaged, mixed or of another tokenizer is refused with one line."
ORDER_IS_FIXED = "Order is fixed by seed and sample number, not by workers or processes."
SIGNALS_SAVE = "SIGTERM saves and exits 143, SIGINT 130."
NEVER_HANGS = "A lost process ends the job and never hangs it."
NUMBERS_ARE_FINITE = "A value that is not finite never enters weights or checkpoints."
NOTHING_VANISHES = "No data vanishes silently: what is dropped or shortened is counted, and no subset is scored."
ANSWERS_ARE_SLICES = "Answers are slices of your text, and scores equal those of the official scripts."
LOADING_RUNS_NOTHING = "Loading a model never runs code: no pickle, no code from elsewhere, no network unless asked."
SERVER_IS_BOUNDED = (
    "The server is bounded in memory, queue and time, and answers each accepted request once, with its own."
)
FULL_DISKS_ARE_SAID = "A full or broken disk ends in one line, and what was whole before stays whole."
SAME_BYTES = "The same command gives the same bytes, whatever the locale, time zone, hash seed or order of a folder."
ANY_MACHINE = (
    "It works on a machine, in a container and beside callers it has never seen: nothing of another's work is touched, "
    "and what cannot be is said in one line."
)
TESTS_CATCH = "The tests are tested: each deliberate defect of this code makes one of them fail."

IN_ORDER = (
    KILL_IT_ANY_TIME,
    NO_WRONG_LOAD,
    ORDER_IS_FIXED,
    SIGNALS_SAVE,
    NEVER_HANGS,
    NUMBERS_ARE_FINITE,
    FULL_DISKS_ARE_SAID,
    NOTHING_VANISHES,
    ANSWERS_ARE_SLICES,
    LOADING_RUNS_NOTHING,
    SERVER_IS_BOUNDED,
    SAME_BYTES,
    ANY_MACHINE,
    TESTS_CATCH,
)
"""As docs/promises.md lists them."""
