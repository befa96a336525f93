"""Take many mutants through the import, and write what became of each: ``python -m mutants --count 2000 --output out/mutants.jsonl``.

Children serve many imports. A mutant that ends otherwise than by acceptance or refusal is imported again, in children of its own, and
that counts. ``--table FILE`` writes the table of results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from mutants.share import run_share
from mutants.table import table
from mutants.trial import Outcome, processor_count

_SHARE = 25


def main(argv: Sequence[str]) -> int:
    """Run it; the exit code says whether all imports kept what is promised."""
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="how many mutants")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=processor_count(), help="how many at once")
    parser.add_argument("--output", type=Path, help="lines of JSON, one a mutant; they are added to the file")
    parser.add_argument("--table", type=Path, help="only print the table of such a file")
    options = parser.parse_args(argv)
    if options.table:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]), end="")
        return 0
    end = options.first + options.count
    shares = [range(begin, min(begin + _SHARE, end)) for begin in range(options.first, end, _SHARE)]
    wrong = 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run_share, share) for share in shares]
        for lines in (future.result() for future in as_completed(futures)):
            for line in lines:
                outcome = Outcome(**{name: line[name] for name in Outcome.__dataclass_fields__})  # type: ignore[arg-type]
                wrong += not outcome.is_right
                if not outcome.is_right:
                    print(json.dumps(line), flush=True)
            if options.output:
                with options.output.open("a", encoding="utf-8") as file:
                    file.writelines(f"{json.dumps(line)}\n" for line in lines)
    print(f"{options.count} mutants, {wrong} against the promises")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
