# SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause)
"""An empty slow disk, for files that only the training itself can make."""

import places_disk
import throttle


class SlowFolder(throttle.SlowDisk):
    """params["folder"] is on it."""

    def __init__(self, mib_s, mib):
        super().__init__(int(mib_s * (1 << 20)), mib)
        self.params = {}

    def __enter__(self):
        super().__enter__()
        self.params = {"folder": self.mount}
        return self

    def command(self, argv, dose):
        return self.enter(argv)

    def tear_down(self):
        if self.made:
            places_disk.end_members(self.group)
        super().tear_down()
