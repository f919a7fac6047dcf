"""``python -m benchmarks``: see `benchmarks.table`."""

from benchmarks.table import main

if __name__ == "__main__":
    main()
