/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for source_csv.c in a build without libcsv. */
#include "common/error.h"
#include "tools/beton-write/sources/sources.h"

int csv_source_open(const source_spec *spec, source **train, beton_error *err)
{
	*train = NULL;
	return bt_fail(err, BETON_UNSUPPORTED,
		       "%s: this program was built without libcsv (Debian: libcsv-dev), which CSV files need",
		       spec->argument);
}
