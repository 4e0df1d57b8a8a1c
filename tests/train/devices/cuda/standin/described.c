/* SPDX-License-Identifier: Apache-2.0 */
#include "described.h"

#include <dlfcn.h>
#include <stdio.h>

#include <cudnn.h>

#include "standin.h"

/* Asked by the leak sanitizer, where there is one: what NVIDIA's libraries keep is not ours. */
const char *__lsan_default_suppressions(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:libcudnn\nleak:libcublasLt\nleak:libnvrtc\n";
}

static bool read_description(const char *path, void **gpu)
{
	char text[4096];
	FILE *file = fopen(path, "rb");
	size_t size = file ? fread(text, 1, sizeof(text), file) : 0;
	if (file)
		fclose(file);
	return size > 0 && size < sizeof(text) &&
	       cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, gpu) == CUDNN_STATUS_SUCCESS &&
	       cudnnBackendSetAttribute(*gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)size,
					text) == CUDNN_STATUS_SUCCESS &&
	       cudnnBackendFinalize(*gpu) == CUDNN_STATUS_SUCCESS;
}

int standin_describe(const char *driver, const char *description, void **gpu)
{
	if (cudnnGetVersion() < 90800) {
		fprintf(stderr, "skipped: cuDNN %zu cannot plan for a GPU that is not there (9.8 can)\n",
			cudnnGetVersion());
		return 77;
	}
	/* Loaded once, it is what cuDNN finds when it searches for libcuda.so.1. */
	if (!dlopen("libcuda.so.1", RTLD_NOW) && !dlopen(driver, RTLD_NOW)) {
		fprintf(stderr, "there is neither a driver nor one in its place: %s\n", dlerror());
		return 77;
	}
	/* Kept, so that what it leaks can be told from what others do; cuDNN loads and unloads it. */
	char nvrtc[32];
	snprintf(nvrtc, sizeof(nvrtc), "libnvrtc.so.%d", CUDART_VERSION / 1000);
	(void)dlopen(nvrtc, RTLD_NOW);
	standin_reset();
	standin.gpu = gpu; /* any, for the attributes of the description itself */
	if (read_description(description, gpu))
		return 0;
	fprintf(stderr, "cuDNN does not plan for %s\n", description);
	return 1;
}
