"""The workbench: is it bounded, does it feel alive? A call log read again and sent again: `python -m workbench`."""
