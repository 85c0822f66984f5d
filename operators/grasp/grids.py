"""The paper's grid of DBSCAN settings (appendix E.2.2)."""

EPS_GRID: tuple[float, ...] = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7)
MIN_SAMPLES_GRID: tuple[int, ...] = (5, 10, 20, 30, 40, 50, 60, 100)
