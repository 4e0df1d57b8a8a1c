/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_link.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

/* NCCL's ranks on one machine exchange data through it, up to about 10 MB a pair. */
#define LEAST_SHM (1ull << 30)

/* PCI Express specification: offset of the extended capabilities, and number of Access Control Services. */
#define PCI_EXTENDED 0x100
#define PCI_ACS 0x000d
#define PCI_CONFIG_SIZE 4096
/* In its control word: peer requests and completions are redirected to the root. */
#define ACS_REDIRECTS 0x000c

void link_add(link_findings *out, link_state state, const char *fix, const char *format, ...)
{
	link_finding *finding = &out->list[out->count];
	if (out->count == LINK_MAX_FINDINGS)
		return;
	out->count++;
	finding->state = state;
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(finding->what, sizeof(finding->what), format, arguments);
	va_end(arguments);
	snprintf(finding->fix, sizeof(finding->fix), "%s", state == LINK_GOOD ? "" : fix);
}

bool link_read_line(const char *root, char *line, size_t size, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	char rest[PATH_MAX / 2];
	vsnprintf(rest, sizeof(rest), format, arguments);
	va_end(arguments);
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s%s", root, rest);
	line[0] = '\0';
	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	bool got = fgets(line, (int)size, file) != NULL;
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return got;
}

static DIR *open_folder(const char *root, const char *name)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s%s", root, name);
	return opendir(path);
}

static int count_entries(const char *root, const char *name)
{
	DIR *folder = open_folder(root, name);
	int count = 0;
	struct dirent *entry;
	while (folder && (entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	if (folder)
		closedir(folder);
	return count;
}

static void find_shared_memory(const char *root, link_findings *out)
{
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/dev/shm", root);
	struct statvfs info;
	if (statvfs(path, &info) != 0) {
		link_add(out, LINK_BAD,
			 "mount a tmpfs on /dev/shm, or give the container --shm-size=1g (NCCL_SHM_DISABLE=1 does "
			 "without, more slowly)",
			 "/dev/shm is not there");
		return;
	}
	unsigned long long size = (unsigned long long)info.f_blocks * info.f_frsize;
	unsigned long long available = (unsigned long long)info.f_bavail * info.f_frsize;
	link_add(out, available >= LEAST_SHM ? LINK_GOOD : LINK_BAD,
		 size < LEAST_SHM
			 ? "give the container --shm-size=1g or --ipc=host, or mount -o remount,size=1g /dev/shm"
			 : "remove what ended processes left there (ls -l /dev/shm), or mount -o remount,size=SIZE "
			   "/dev/shm",
		 "/dev/shm has %llu MiB, %llu MiB of them free", size >> 20, available >> 20);
}

/* Adapters register memory, which locks it. */
static void find_locked_memory(const char *root, link_findings *out)
{
	bool adapters = count_entries(root, "/sys/class/infiniband") > 0;
	struct rlimit limit;
	if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
		return;
	if (limit.rlim_cur == RLIM_INFINITY)
		link_add(out, LINK_GOOD, "", "locked memory: unlimited");
	else
		link_add(out, adapters ? LINK_BAD : LINK_GOOD, "ulimit -l unlimited (docker: --ulimit memlock=-1)",
			 "locked memory: %llu KiB%s", (unsigned long long)limit.rlim_cur >> 10,
			 adapters ? ", and InfiniBand adapters need more" : "");
}

static void find_iommu(const char *root, link_findings *out)
{
	bool active = count_entries(root, "/sys/class/iommu") > 0;
	char line[2048];
	if (!link_read_line(root, line, sizeof(line), "/proc/cmdline"))
		return;
	if (!active)
		link_add(out, LINK_GOOD, "", "IOMMU: off");
	else if (strstr(line, "iommu=pt") || strstr(line, "iommu.passthrough=1"))
		link_add(out, LINK_GOOD, "", "IOMMU: on, passing through");
	else
		link_add(out, LINK_BAD,
			 "boot with iommu=pt, or switch the IOMMU off; in a virtual machine this is its host's "
			 "business; to "
			 "see "
			 "whether it is to blame: NCCL_P2P_DISABLE=1",
			 "IOMMU: on and translating: transfers between GPUs may be slow, or hang");
}

static unsigned word_at(const uint8_t *config, size_t at)
{
	return config[at] | (unsigned)config[at + 1] << 8;
}

/* -1: not known, because only root can read more than 64 bytes. 0: none, also for a device with 256 bytes, which has no
 * extended capabilities. A device may report a cyclic list, so the search is bounded. */
static int acs_control(const uint8_t *config, size_t size)
{
	size_t at = PCI_EXTENDED;
	if (size < PCI_EXTENDED)
		return -1;
	for (int steps = 0; steps < 64 && at >= PCI_EXTENDED && at + 8 <= size; steps++) {
		if (word_at(config, at) == PCI_ACS)
			return (int)word_at(config, at + 6);
		at = word_at(config, at + 2) >> 4;
	}
	return 0;
}

typedef struct pci_count {
	int gpus, bridges, redirecting, hidden;
	char example[32];
} pci_count;

static void look_at_pci(const char *root, const char *address, pci_count *count)
{
	size_t size = 0;
	char device_class[32], vendor[32];
	if (!link_read_line(root, device_class, sizeof(device_class), "/sys/bus/pci/devices/%s/class", address) ||
	    !link_read_line(root, vendor, sizeof(vendor), "/sys/bus/pci/devices/%s/vendor", address))
		return;
	count->gpus += strncmp(device_class, "0x03", 4) == 0 && strcmp(vendor, "0x10de") == 0;
	if (strncmp(device_class, "0x0604", 6) != 0)
		return;
	count->bridges++;
	char path[PATH_MAX];
	snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/config", root, address);
	FILE *file = fopen(path, "re");
	uint8_t config[PCI_CONFIG_SIZE];
	if (file) {
		size = fread(config, 1, sizeof(config), file);
		fclose(file);
	}
	int control = acs_control(config, size);
	count->hidden += control < 0;
	if (control > 0 && control & ACS_REDIRECTS) {
		count->redirecting++;
		snprintf(count->example, sizeof(count->example), "%.31s", address);
	}
}

static void find_access_control(const char *root, link_findings *out)
{
	DIR *folder = open_folder(root, "/sys/bus/pci/devices");
	pci_count count = {0};
	struct dirent *entry;
	while (folder && (entry = readdir(folder))) {
		if (entry->d_name[0] != '.')
			look_at_pci(root, entry->d_name, &count);
	}
	if (folder)
		closedir(folder);
	if (count.bridges == 0)
		return;
	char fix[240];
	snprintf(fix, sizeof(fix),
		 "switch ACS off in the BIOS, or until the next boot: setpci -s %s ECAP_ACS+6.w=0000 (for each such "
		 "bridge, as root)",
		 count.example);
	if (count.redirecting)
		link_add(out, LINK_BAD, fix,
			 "ACS: %d of %d PCIe bridges send traffic between GPUs up to the root (%s ...)",
			 count.redirecting, count.bridges, count.example);
	else if (count.hidden)
		link_add(out, LINK_UNKNOWN, "run this as root (in a container: --cap-add SYS_ADMIN)",
			 "ACS: unknown: needs root to be read on %d of %d PCIe bridges", count.hidden, count.bridges);
	else
		link_add(out, LINK_GOOD, "", "ACS: not in the way on %d PCIe bridges", count.bridges);
}

static bool is_inner(const char *name)
{
	return strcmp(name, "lo") == 0 || strncmp(name, "docker", 6) == 0 || strncmp(name, "veth", 4) == 0 ||
	       strncmp(name, "br-", 3) == 0 || strncmp(name, "virbr", 5) == 0;
}

/* NCCL tries "ib..." first, then any interface except docker and lo; Gloo uses one name. */
static void find_interfaces(const char *root, link_findings *out)
{
	DIR *folder = open_folder(root, "/sys/class/net");
	const char *chosen = getenv("NCCL_SOCKET_IFNAME");
	char names[120] = "";
	size_t used = 0;
	int up = 0;
	char state[32];
	struct dirent *entry;
	while (folder && (entry = readdir(folder))) {
		if (entry->d_name[0] == '.' || is_inner(entry->d_name) ||
		    !link_read_line(root, state, sizeof(state), "/sys/class/net/%s/operstate", entry->d_name) ||
		    strcmp(state, "down") == 0)
			continue;
		up++;
		if (used + strlen(entry->d_name) + 3 < sizeof(names))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", used ? ", " : "",
						 entry->d_name);
	}
	if (folder)
		closedir(folder);
	if (chosen && strcmp(chosen, "lo") == 0)
		link_add(out, up == 0 ? LINK_GOOD : LINK_BAD,
			 "unset NCCL_SOCKET_IFNAME, or name the interface between the machines",
			 "NCCL_SOCKET_IFNAME is lo: no other machine is reached");
	else if (up == 0)
		link_add(out, LINK_BAD,
			 "for one machine nothing; for several, bring an interface up (docker: --network=host)",
			 "no network interface is up but those inside this machine");
	else if (up > 1 && !chosen)
		link_add(out, LINK_BAD,
			 "for several machines, name the one between them: NCCL_SOCKET_IFNAME=NAME for NCCL, "
			 "--interface "
			 "NAME for Gloo",
			 "%d network interfaces are up, and none is chosen: %s", up, names);
	else
		link_add(out, LINK_GOOD, "", "network interface: %s", chosen ? chosen : names);
}

static void find_visible_devices(link_findings *out)
{
	const char *text = getenv("CUDA_VISIBLE_DEVICES");
	char *save = NULL;
	int count = 0;
	if (!text)
		return;
	char copy[512];
	snprintf(copy, sizeof(copy), "%s", text);
	char *names[64];
	for (char *name = strtok_r(copy, ",", &save); name && count < 64; name = strtok_r(NULL, ",", &save)) {
		for (int i = 0; i < count; i++) {
			if (strcmp(names[i], name) != 0)
				continue;
			link_add(out, LINK_BAD, "name each GPU once: NCCL takes one rank for each",
				 "CUDA_VISIBLE_DEVICES=%.80s has GPU %.40s twice", text, name);
			return;
		}
		names[count++] = name;
	}
	link_add(out, LINK_GOOD, "", "CUDA_VISIBLE_DEVICES: %d GPUs, each once", count);
}

void link_find(const char *root, link_findings *out)
{
	out->count = 0;
	find_shared_memory(root, out);
	find_locked_memory(root, out);
	find_iommu(root, out);
	find_access_control(root, out);
	find_interfaces(root, out);
	find_visible_devices(out);
}
