"""Renderers: report objects as text, HTML and plots."""
