"""docs/flags.md says what the tables say."""

from docs.tools.flag_docs import PAGE, render


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == render(), "run: python -m docs.tools.flag_docs"
    assert "{run" not in render() and "&lt;stage&gt; with --pipeline_parallel_degree &lt;pipeline&gt;" in render()
