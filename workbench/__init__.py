"""The workbench: is it bounded, does it feel alive? What call logs say, and their calls sent again."""
