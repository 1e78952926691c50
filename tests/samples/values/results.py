"""What SciPy's optimizers, integrators and tests return, and its search trees."""

from __future__ import annotations

import numpy as np
from dask.array import stats as of_dask
from scipy import integrate, optimize, spatial, stats

ONE, OTHER = np.random.default_rng(0).normal(size=(2, 12))


def examples() -> dict[str, object]:
    return {
        "minimum": optimize.minimize(np.linalg.norm, np.ones(2), bounds=[(0.5, 2)] * 2),
        "root": optimize.root_scalar(np.sin, bracket=[3, 4]),
        "program": optimize.linprog([1], bounds=[(0, 1)]),
        "steps": integrate.solve_ivp(lambda t, y: -y, [0, 1], [1.0]),
        "integral": integrate.tanhsinh(np.sin, 0, 1),
        "t-test": stats.ttest_ind(ONE, OTHER),
        "correlation": stats.pearsonr(ONE, OTHER),
        "ranks": stats.spearmanr(ONE, OTHER),
        "line": stats.linregress(ONE, OTHER),
        "distance": stats.kstest(ONE, "norm"),
        "table": stats.chi2_contingency([[1, 2], [3, 4]]),
        "description": stats.describe(ONE),
        "resampled": stats.bootstrap((ONE,), np.mean, n_resamples=9, rng=0),
        "trials": stats.binomtest(3, 10),
        "pairs": stats.tukey_hsd(ONE, OTHER),
        "of Dask": of_dask.NormaltestResult(ONE[0], 0.5),
        "tree": spatial.KDTree(ONE.reshape(6, 2)),
    }


#: Of two samples, and of one.
BOTH = (
    *("ttest_rel", "mannwhitneyu", "wilcoxon", "ks_2samp", "kruskal", "f_oneway", "levene", "mood"),
    *("bartlett", "fligner", "ansari", "kendalltau", "theilslopes", "somersd", "brunnermunzel"),
    *("cramervonmises_2samp", "alexandergovern", "ranksums", "logrank", "median_test"),
)
EACH = ("normaltest", "skewtest", "jarque_bera", "shapiro", "mode", "sigmaclip", "relfreq")


def others() -> list[object]:
    """Return more of what tests and optimizers return, also of many samples at once."""
    table = np.array([[1, 2], [3, 4]])
    return [
        *(getattr(stats, name)(ONE, OTHER) for name in BOTH),
        stats.dunnett(ONE, control=OTHER),
        *(getattr(stats, name)(ONE) for name in EACH),
        *(optimize.minimize(np.linalg.norm, np.ones(2), method=m) for m in ("CG", "trust-constr")),
        optimize.least_squares(np.sin, [1.0]), optimize.differential_evolution(
            np.linalg.norm, [(0, 1)], maxiter=2, rng=0
        ),
        stats.mannwhitneyu(*np.reshape([ONE, OTHER], (2, 3, 4))), stats.barnard_exact(table),
        stats.contingency.odds_ratio(table), stats.contingency.crosstab([1, 2], [1, 1]),
        stats.cramervonmises(ONE, "norm"),
        *(kind(ONE[0], ONE) for name, kind in vars(of_dask).items() if name.endswith("Result")),
        stats.page_trend_test([[1, 2, 3], [2, 3, 4]]),
        spatial.cKDTree(np.ones((20, 3)), leafsize=4), spatial.KDTree(np.zeros((0, 2))),
    ]  # fmt: skip
