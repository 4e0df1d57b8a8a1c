/* SPDX-License-Identifier: Apache-2.0
 *
 * make-file FILE.beton: writes 10 samples there, for tests that are not cmocka programs. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	char *path = fixture_write(10, -1);
	if (rename(path, argv[1]) != 0) {
		perror(argv[1]);
		return 1;
	}
	fixture_remove(path);
	return 0;
}
