"""Stand-ins for the repositories that Bazel 4 and 5 would download.

Every toolchain that Bazel registers by itself loads `@rules_cc` or `@rules_java`, and
every test depends on `@remote_coverage_tools`.  The rules themselves are built into
the Bazel binary, so handing those out is all it takes to build without a network.
"""

# language -> (what the rules want in their tags, the rules).
_RULES = {
    "cc": ("CC", [
        "binary",
        "import",
        "library",
        "proto_library",
        "test",
        "toolchain",
        "toolchain_suite",
    ]),
    "java": ("JAVA", [
        "binary",
        "import",
        "library",
        "proto_library",
        "runtime",
        "test",
        "toolchain",
    ]),
}

_RULE = """
def {name}(tags = None, **kwargs):
    tags = (tags or []) + ["__{tag}_RULES_MIGRATION_DO_NOT_USE_WILL_BREAK__"]
    native.{name}(tags = tags, **kwargs)
"""

_OBJC_LIBRARY = """
def objc_library(**kwargs):
    native.objc_library(**kwargs)
"""

_COVERAGE_TOOL = """
filegroup(
    name = "{name}",
    srcs = ["nothing.sh"],
    visibility = ["//visibility:public"],
)
"""

def _bundled_rules_impl(ctx):
    ctx.file("nothing.sh", "#!/bin/sh\n", executable = True)
    ctx.file("BUILD", "".join([
        _COVERAGE_TOOL.format(name = name)
        for name in ["coverage_report_generator", "lcov_merger"]
    ]))
    for language, (tag, rules) in _RULES.items():
        ctx.file(language + "/BUILD")
        ctx.file(language + "/defs.bzl", "".join([
            _RULE.format(name = language + "_" + rule, tag = tag)
            for rule in rules
        ] + ([_OBJC_LIBRARY] if language == "cc" else [])))

bundled_rules = repository_rule(implementation = _bundled_rules_impl)
