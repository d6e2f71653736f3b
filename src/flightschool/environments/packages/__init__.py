"""Environment packages: a kept environment as a folder that people read, carry to another machine, and import again."""

from flightschool.environments.packages.importing import PackageContent, import_package, read_package
from flightschool.environments.packages.layout import MANIFEST, is_package
from flightschool.environments.packages.manifest import Manifest
from flightschool.environments.packages.places import default_place, edited_files, package_files, refresh_package
from flightschool.environments.packages.writing import write_package

__all__ = [
    "MANIFEST",
    "Manifest",
    "PackageContent",
    "default_place",
    "edited_files",
    "import_package",
    "is_package",
    "package_files",
    "read_package",
    "refresh_package",
    "write_package",
]
