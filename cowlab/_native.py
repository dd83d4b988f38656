"""What stands in for the C core where there is none: it says why, by name.

An extension module comes before a source file of the same name, so this is imported
only where no core is built for the interpreter.
"""

from cowlab._errors import CoreMissing, why_no_core

raise CoreMissing(why_no_core())
