/* SPDX-License-Identifier: Apache-2.0
 *
 * make-pictures FOLDER [CLASSES [PER_CLASS [SIDE]]]: class folders with pictures of all kinds, all named .JPEG. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "pictures.h"

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	int classes = argc > 2 ? atoi(argv[2]) : 3;
	int per_class = argc > 3 ? atoi(argv[3]) : PICTURE_KINDS;
	uint32_t side = argc > 4 ? (uint32_t)atoi(argv[4]) : 150;
	mkdir(argv[1], 0755);
	for (int i = 0; i < classes; i++) {
		char path[512];
		snprintf(path, sizeof(path), "%s/class%02d", argv[1], i);
		if (mkdir(path, 0755) != 0) {
			perror(path);
			return 1;
		}
		for (int j = 0; j < per_class; j++) {
			picture_kind kind = (picture_kind)(j % PICTURE_KINDS);
			snprintf(path, sizeof(path), "%s/class%02d/%03d-%s.JPEG", argv[1], i, j, picture_names[kind]);
			picture_write(kind, side, side * 2 / 3 + (uint32_t)i, path);
		}
	}
	return 0;
}
