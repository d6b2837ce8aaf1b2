/* A library with the names of NVML's, of our own, built by tests/nvml.rs: four GPUs that answer as bad ones do.
 * 0 answers well; 1 has every number blank (all bits set) or not supported; 2 is lost; 3 is divided into slices.
 * With -DSLOW every question of power takes 20 seconds. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct { int index; int slice; } Device;
static Device gpus[4] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
static Device slices[2] = {{3, 1}, {3, 2}};
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };

#define ASK(device) \
    if ((device)->index == 2) return LOST; \
    if ((device)->slice) return NOT_SUPPORTED

int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 4; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
    if (index >= 4) return INVALID;
    *device = &gpus[index];
    return OK;
}
int nvmlDeviceGetUUID(Device *d, char *text, unsigned room) {
    if (d->slice) snprintf(text, room, "MIG-stub-%d", d->slice);
    else snprintf(text, room, "GPU-stub-%d", d->index);
    return OK;
}
int nvmlDeviceGetName(Device *d, char *text, unsigned room) {
    snprintf(text, room, d->slice ? "Stub MIG 1g" : "Stub GPU");
    return OK;
}
int nvmlDeviceGetMinorNumber(Device *d, unsigned *minor) { ASK(d); *minor = d->index; return OK; }
int nvmlDeviceGetUtilizationRates(Device *d, unsigned use[2]) {
    ASK(d);
    if (d->index == 3) return NOT_SUPPORTED;
    use[0] = d->index ? ~0u : 35;
    use[1] = d->index ? ~0u : 12;
    return OK;
}
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory;
int nvmlDeviceGetMemoryInfo_v2(Device *d, Memory *memory) {
    if (d->index == 2) return LOST;
    if (memory->version != (sizeof(Memory) | 2 << 24)) return INVALID;
    memory->total = d->index == 1 ? ~0ull : d->slice ? 1000 * d->slice : 80000;
    memory->reserved = d->index == 1 ? ~0ull : 500;
    memory->used = d->index == 1 ? ~0ull : d->slice ? 100 * d->slice : 30000;
    memory->free = 0;
    return OK;
}
int nvmlDeviceGetPowerUsage(Device *d, unsigned *mw) {
    ASK(d);
#ifdef SLOW
    sleep(20);
#endif
    *mw = d->index == 1 ? ~0u : 71234;
    return OK;
}
int nvmlDeviceGetEnforcedPowerLimit(Device *d, unsigned *mw) { ASK(d); *mw = d->index == 1 ? 0 : 700000; return OK; }
int nvmlDeviceGetTotalEnergyConsumption(Device *d, unsigned long long *mj) {
    ASK(d);
    *mj = d->index == 1 ? ~0ull : 123456789;
    return OK;
}
int nvmlDeviceGetClockInfo(Device *d, int which, unsigned *mhz) {
    ASK(d);
    if (d->index == 1) return NOT_SUPPORTED;
    *mhz = which == 1 ? 1980 : which == 2 ? 3201 : 0;
    return OK;
}
int nvmlDeviceGetTemperature(Device *d, int sensor, unsigned *celsius) {
    ASK(d);
    if (sensor) return INVALID;
    *celsius = d->index == 1 ? 255 : 41;
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Device *d, unsigned long long *bits) {
    ASK(d);
    if (d->index == 1) return NOT_SUPPORTED;
    *bits = 0x4 | 0x20;
    return OK;
}
int nvmlDeviceGetTotalEccErrors(Device *d, int kind, int counter, unsigned long long *errors) {
    ASK(d);
    if (d->index == 1 || counter) return NOT_SUPPORTED;
    *errors = kind ? 2 : 7;
    return OK;
}
int nvmlDeviceGetMigMode(Device *d, unsigned *now, unsigned *later) {
    ASK(d);
    if (d->index == 1) return NOT_SUPPORTED;
    *now = *later = d->index == 3;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *d, unsigned *count) { ASK(d); *count = d->index == 3 ? 7 : 0; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, unsigned index, Device **slice) {
    /* Places stay empty. */
    if (d->index != 3 || (index != 1 && index != 4)) return NOT_FOUND;
    *slice = &slices[index == 4];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *d, unsigned *id) { *id = d->slice; return d->slice ? OK : INVALID; }
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *count, Process *list) {
    if (d->index == 2) return LOST;
    /* More than a first guess has room for. */
    unsigned have = d->index == 0 ? 100 : 0;
    if (*count < have) { *count = have; return TOO_SMALL; }
    for (unsigned i = 0; i < have; i++) {
        memset(&list[i], 0, sizeof *list);
        list[i].pid = 4000000 + i;
        list[i].memory = ~0ull;
    }
    *count = have;
    return OK;
}
