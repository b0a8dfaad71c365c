"""An interactive tool beside the pipeline: small questions about what is stored, answered in this process.

`LakeReader` opens a lake. What it reads is planned by `_query.selection` and read by `_query.scan`, as in the
tasks of the data source.
"""
