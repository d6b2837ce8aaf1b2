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
int nvmlDeviceGetPcieReplayCounter(Device *d, unsigned *count) { ASK(d); *count = d->index == 1 ? ~0u : 3; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(Device *d, unsigned *of) { ASK(d); *of = d->index == 1 ? 0 : 5; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(Device *d, unsigned *lanes) { ASK(d); *lanes = d->index == 1 ? ~0u : 16; return OK; }
typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    int type, code;
    union { double d; unsigned ui; unsigned long long ull; } value;
} Field;
int nvmlDeviceGetFieldValues(Device *d, int count, Field *fields) {
    ASK(d);
    for (int i = 0; i < count; i++) {
        Field *f = &fields[i];
        f->code = OK;
        f->type = 3; /* unsigned long long */
        switch (f->field) {
        case 82: f->type = 1; f->value.ull = 0xdead00000000ull | 61; break; /* only the lower half is the number */
        case 197: f->value.ull = 5000000000ull; break;
        case 198: f->value.ull = 6000000000ull; break;
        /* All links together, in KiB; of one link less. */
        case 138: f->value.ull = f->scope == ~0u ? 7000000 : 1; break;
        case 139: f->value.ull = f->scope == ~0u ? 8000000 : 1; break;
        case 38: f->type = 1; f->value.ull = 0xdead00000000ull | 4; break;
        case 45: f->value.ull = 5; break;
        case 52: f->type = 0; f->value.d = 6.5; break; /* a fraction is no count */
        case 59: f->value.ull = 7; break;
        default: f->code = NOT_SUPPORTED;
        }
        if (d->index == 1) f->value.ull = ~0ull;
        /* In 32 bits bytes go round too soon to be followed. */
        if (d->index == 3 && f->field >= 138) f->type = 1;
    }
    return OK;
}
