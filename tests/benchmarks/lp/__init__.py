"""alpha-LPBoost against HiGHS, CLARABEL and CVXPY."""
