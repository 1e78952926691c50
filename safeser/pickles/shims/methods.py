"""The names that a task of an approved graph may look up on arrays, frames and generators.

The one rule: exact names, each of which only computes. Whatever reads or writes files, evaluates
text, imports by a name or hands out something that can be called is in none of these lists.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "ACCESSORS",
    "DATA_ATTRIBUTES",
    "DRAWS",
    "GROUP_METHODS",
    "METHODS",
    "OPERATORS",
    "WINDOW_METHODS",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: What a task may take of whatever object another task gives it. Anything else may be a method, and
#: max(paths, key=...) or apply() calls that: ndarray.tofile writes files, DataFrame.eval runs text.
DATA_ATTRIBUTES = _words("""
    T columns day denominator dtype dtypes hour imag index itemsize left microsecond mid minute
    month name names nbytes ndim numerator real right second shape size start step stop values year
""")

#: Of arrays and frames. Others write files or evaluate text: tofile, to_pickle, query, eval.
_FRAME_METHODS = _words("""
    abs add_prefix add_suffix align all any argmax argmin argsort astype bfill between clip combine
    combine_first copy corr cov count cummax cummin cumprod cumsum diff dot drop drop_duplicates
    dropna explode ffill fillna first head idxmax idxmin isin isna isnull kurt kurtosis last map
    mask max mean median melt memory_usage merge min mode nlargest notna notnull nsmallest nunique
    pct_change pow prod product quantile rank ravel reindex rename rename_axis repeat replace
    reset_index reshape round select_dtypes sem set_index shift size skew sort_index sort_values
    std sum tail to_frame to_numpy to_records to_series to_timestamp transpose tz_convert
    tz_localize unique
    value_counts values var where
    add sub mul div truediv floordiv mod radd rsub rmul rdiv rtruediv rfloordiv rmod rpow
    eq ne lt le gt ge
""")

GROUP_METHODS = _words("""
    all any bfill count cumcount cummax cummin cumprod cumsum ffill first head idxmax idxmin last
    max mean median min ngroup nunique ohlc prod quantile rank sem shift size skew std sum tail
    value_counts var
""")

METHODS = _FRAME_METHODS | GROUP_METHODS | {"apply"}

WINDOW_METHODS = _words(
    "apply corr count cov first kurt last max mean median min nunique ohlc prod quantile rank sem"
    " size skew std sum var"
)

OPERATORS = _words("""
    add sub mul div divide truediv floordiv mod pow radd rsub rmul rdiv rtruediv rfloordiv rmod
    rpow eq ne lt le gt ge combine combine_first
""")

#: Of ``.str``, ``.dt`` and ``.cat``. Not in it: encode and decode, which import the codec by name.
ACCESSORS: Mapping[str, frozenset[str]] = {
    "str": _words("""
        capitalize casefold cat center contains count endswith extract extractall find findall
        fullmatch get index isalnum isalpha isdecimal isdigit islower isnumeric isspace istitle
        isupper join len ljust lower lstrip match normalize pad partition removeprefix removesuffix
        repeat replace rfind rindex rjust rpartition rsplit rstrip slice slice_replace split
        startswith strip swapcase title translate upper wrap zfill __getitem__
    """),
    "dt": _words("""
        as_unit asfreq ceil components date day day_name day_of_week day_of_year dayofweek
        dayofyear days days_in_month daysinmonth end_time floor freq hour is_leap_year
        is_month_end is_month_start is_quarter_end is_quarter_start is_year_end is_year_start
        isocalendar microsecond microseconds minute month month_name nanosecond nanoseconds
        normalize quarter qyear round second seconds start_time strftime time timetz to_period
        to_pydatetime to_pytimedelta to_timestamp total_seconds tz tz_convert tz_localize unit
        week weekday weekofyear year
    """),
    "cat": _words("""
        add_categories as_ordered as_unordered categories codes ordered remove_categories
        remove_unused_categories rename_categories reorder_categories set_categories
    """),
}

#: Of random states and generators. Not in it: bytes, and what reads or sets the state.
DRAWS = _words("""
    beta binomial chisquare choice dirichlet exponential f gamma geometric gumbel hypergeometric
    integers laplace logistic lognormal logseries multinomial multivariate_hypergeometric
    multivariate_normal negative_binomial noncentral_chisquare noncentral_f normal pareto
    permutation permuted poisson power rand randint randn random random_integers random_sample
    rayleigh sample standard_cauchy standard_exponential standard_gamma standard_normal standard_t
    tomaxint triangular uniform vonmises wald weibull zipf
""")
