import subprocess
import sys

import pytest

_NOTEBOOK = """
import sys
import analysis
from analysis import AnalyzeSettings, CHAPTERS, Options
settings = AnalyzeSettings(options=Options(permutations=99, bootstraps=99))
study = analysis.compute(analysis.load(sys.argv[1]), {}, settings, CHAPTERS)
assert study.tables["kendall_tau", "greatest"].height == 2
loaded = {name.split(".")[0] for name in sys.modules}
sys.exit(f"loaded: {loaded & set(UNWANTED)}" if loaded & set(UNWANTED) else 0)
"""


@pytest.mark.slow
def test_a_notebook_that_wants_tables_loads_neither_a_plotting_library_nor_jax(small_run):
    unwanted = ("matplotlib", "seaborn", "plotly", "jax", "flax", "transformers", "torch")
    code = _NOTEBOOK.replace("UNWANTED", repr(unwanted))
    subprocess.run([sys.executable, "-c", code, str(small_run)], check=True)
