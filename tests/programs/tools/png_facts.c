/* SPDX-License-Identifier: Apache-2.0
 *
 * png-facts FILE [X Y]: decodes a PNG completely and prints its size, and the colour of a pixel. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

int main(int argc, char **argv)
{
	png_image image = {.version = PNG_IMAGE_VERSION};
	if (argc < 2 || !png_image_begin_read_from_file(&image, argv[1])) {
		fprintf(stderr, "png-facts: %s\n", image.message);
		return 1;
	}
	image.format = PNG_FORMAT_RGB;
	png_byte *pixels = malloc(PNG_IMAGE_SIZE(image));
	if (!pixels || !png_image_finish_read(&image, NULL, pixels, 0, NULL)) {
		fprintf(stderr, "png-facts: %s\n", image.message);
		free(pixels);
		return 1;
	}
	printf("%u x %u\n", image.width, image.height);
	if (argc == 4) {
		const png_byte *pixel =
			pixels + (strtoul(argv[3], NULL, 10) * image.width + strtoul(argv[2], NULL, 10)) * 3;
		printf("pixel %d %d %d\n", pixel[0], pixel[1], pixel[2]);
	}
	free(pixels);
	return 0;
}
