/* SPDX-License-Identifier: Apache-2.0
 *
 * print-batches.c in C++: owners close what they hold, errors are exceptions. Build it against an installed library:
 *
 *     c++ -std=c++17 print-batches.cc $(pkg-config --cflags --libs libbeton-loader) -o print-batches
 *
 * and with -Wl,-rpath,$(pkg-config --variable=libdir libbeton-loader) where the system does not look for libraries.
 */
#include <cstdio>
#include <memory>
#include <stdexcept>

#include <beton/loader.h>

namespace
{

/* Calls a function of the library that fills *out and an error, and owns the result. */
template <typename T, void (*Close)(T **), typename Open> auto own(Open open)
{
	struct closer {
		void operator()(T *object) const
		{
			Close(&object);
		}
	};
	T *object = nullptr;
	beton_error err;
	if (open(&object, &err) != BETON_OK)
		throw std::runtime_error(err.message);
	return std::unique_ptr<T, closer>(object);
}

struct releaser {
	void operator()(beton_batch *batch) const
	{
		beton_batch_release(&batch);
	}
};
using batch_pointer = std::unique_ptr<beton_batch, releaser>;

/* The next batch, or null at the end of the epoch. Throws if this batch is lost; the next one may be fine. */
batch_pointer next(beton_iterator *iterator)
{
	beton_batch *batch = nullptr;
	beton_error err;
	int result = beton_iterator_next(iterator, &batch, -1, &err);
	if (result != BETON_OK && result != BETON_END)
		throw std::runtime_error(err.message);
	return batch_pointer(result == BETON_OK ? batch : nullptr);
}

void print_batch(const beton_batch &batch)
{
	std::printf("batch at %llu: %u samples, first %llu;", static_cast<unsigned long long>(batch.position),
		    batch.count, static_cast<unsigned long long>(batch.sample_ids[0]));
	for (uint32_t i = 0; i < batch.num_tensors; i++) {
		const beton_tensor &tensor = batch.tensors[i];
		std::printf(" %s [", tensor.name);
		for (uint32_t d = 0; d < tensor.ndim; d++)
			std::printf("%s%lld", d ? ", " : "", static_cast<long long>(tensor.shape[d]));
		std::printf("]");
	}
	std::printf("\n");
}

int print_epoch(const char *path)
{
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.batch_size = 4;
	options.order = BETON_ORDER_RANDOM;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	options.image.height = options.image.width = 32;
	auto loader = own<beton_loader, beton_loader_close>(
		[&](beton_loader **out, beton_error *err) { return beton_loader_open(out, path, &options, err); });
	auto iterator = own<beton_iterator, beton_iterator_close>([&](beton_iterator **out, beton_error *err) {
		return beton_iterator_open(out, loader.get(), 0, 0, err);
	});
	for (int lost = 0;;) {
		try {
			batch_pointer batch = next(iterator.get());
			if (!batch)
				return lost > 0;
			print_batch(*batch);
		} catch (const std::runtime_error &error) {
			std::fprintf(stderr, "print-batches: %s\n", error.what());
			lost++;
		}
	}
}

} // namespace

int main(int argc, char **argv)
{
	if (argc != 2) {
		std::fprintf(stderr, "usage: print-batches FILE.beton\n");
		return 2;
	}
	try {
		return print_epoch(argv[1]);
	} catch (const std::runtime_error &error) {
		std::fprintf(stderr, "print-batches: %s\n", error.what());
		return 1;
	}
}
