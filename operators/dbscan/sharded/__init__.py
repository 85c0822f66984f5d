"""Exact DBSCAN over a grid for a class that no worker can hold, block by block on disk, with the kernel's
labels.

1. Rows are divided into blocks of fixed size (``blocks``); random samples decide most rows (``density``).
2. Each undecided row is compared with the blocks that its bounding box may reach; its neighbours are kept
   (``density``).
3. A few random rows (hubs) connect most core samples, at every radius at once (``hubs``). Core samples
   outside the largest component are compared with the blocks (``links``).
4. For each min_samples one worker connects the hubs and the rows that no hub connects (``links``); labels
   are then read block by block (``labels``).

``solve`` is the order of these steps. Only counts, edges between hubs, and file names pass through the
driver.
"""

from operators.dbscan.sharded.labels import BlockLabels, Solved
from operators.dbscan.sharded.solve import lay_out, solve

__all__ = ["BlockLabels", "Solved", "lay_out", "solve"]
