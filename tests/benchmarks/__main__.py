"""``python -m tests.benchmarks``: time the kernels against their peers."""

import argparse
import datetime
import platform
from pathlib import Path

import numpy as np
import sklearn
import torch

from tests.benchmarks import dbscan

parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=dbscan.__doc__)
parser.add_argument("--large", action="store_true", help="add 100,000 and 1,000,000 rows")
parser.add_argument("--intelex", metavar="PYTHON", help="interpreter that has scikit-learn-intelex")
options = parser.parse_args()

info = Path("/proc/cpuinfo")
models = (
    {line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")}
    if info.exists()
    else {platform.processor()}
)
print(f"{datetime.date.today()}, {', '.join(models)}, one thread, CPU seconds, medians")
print(f"numpy {np.__version__}, torch {torch.__version__}, scikit-learn {sklearn.__version__}\n")
dbscan.main(options.large, options.intelex)
