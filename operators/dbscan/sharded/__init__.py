"""Exact DBSCAN over a grid for rows that no worker can hold: the same labels, block by block on disk.

1. Rows are cut into blocks of fixed size; samples settle most of them (``density``).
2. Each row left is compared with the blocks that its box may reach; neighbours are kept (``density``).
3. A few random rows (hubs) join most cores, at every radius at once (``hubs``); cores outside the largest
   component are compared with the blocks (``links``).
4. For each min_samples one worker joins hubs and the rows that no hub explains (``reached``); every
   block then reads its labels (``labels``).

Only counts, edges between hubs, and file names pass through the driver.
"""

from operators.dbscan.sharded.labels import BlockLabels, Solved
from operators.dbscan.sharded.solve import lay_out, solve

__all__ = ["BlockLabels", "Solved", "lay_out", "solve"]
