"""measure() inside a notebook kernel, which has threads and streams of its own."""

from __future__ import annotations

import pytest


def test_works_in_a_notebook_kernel(tmp_path):
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    client = pytest.importorskip("jupyter_client", reason="no jupyter_client")
    manager, kernel = client.manager.start_new_kernel(
        kernel_name="python3", cwd=str(tmp_path)
    )
    try:
        reply = kernel.execute_interactive(
            "import cowlab; report = cowlab.measure(lambda: 6 * 7, timeout=60)\n"
            "assert report.value == 42\n"
            "assert any('thread' in text for text in report.warnings)",
            timeout=120,
        )
        assert reply["content"]["status"] == "ok", reply["content"]
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)
