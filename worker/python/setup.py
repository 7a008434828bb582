"""setup.py - the wheel holds a C library and programs, but no extension module: any Python 3, one
platform. deploy/wheel says which ($THINWIRE_PLATFORM)."""
import os

from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class Wheel(bdist_wheel):
    """A wheel of tag py3-none-PLATFORM."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", os.environ.get("THINWIRE_PLATFORM", super().get_tag()[2])


class Binary(Distribution):
    """A distribution whose files are of one platform."""

    def has_ext_modules(self):
        return True


setup(cmdclass={"bdist_wheel": Wheel}, distclass=Binary)
