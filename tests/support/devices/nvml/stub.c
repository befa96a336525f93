// A driver's library of one GPU, for the binding to load where there is no driver: functions as NVML's documentation has them.
// With -DOLD, those that drivers of before 2023 lack are missing.
#include <stdio.h>
#include <string.h>

#define UUID "GPU-00000000-1234-5678-9abc-def012345678"
#define TEXT(name, text) \
    int name(void *gpu, char *into, unsigned size) { (void)gpu; snprintf(into, size, "%s", text); return 0; }
#define NUMBER(name, number) \
    int name(void *gpu, unsigned *into) { (void)gpu; *into = number; return 0; }
#define OF_KIND(name, ...) \
    int name(void *gpu, unsigned kind, unsigned *into) { (void)gpu; *into = (unsigned[]){__VA_ARGS__}[kind]; return 0; }

enum { INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Load;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } Sample;

int nvmlInitWithFlags(unsigned flags) { return flags ? INVALID_ARGUMENT : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the stub"; }
int nvmlSystemGetDriverVersion(char *into, unsigned size) { snprintf(into, size, "550.54.15"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu) { *gpu = UUID; return index ? INVALID_ARGUMENT : 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **gpu) { *gpu = UUID; return strcmp(uuid, UUID) ? NOT_FOUND : 0; }
int nvmlSystemGetProcessName(unsigned pid, char *into, unsigned size) {
    snprintf(into, size, "/usr/bin/python3");
    return pid == 4242 ? 0 : NOT_FOUND;
}

TEXT(nvmlDeviceGetUUID, UUID)
TEXT(nvmlDeviceGetName, "NVIDIA H100 80GB HBM3")
NUMBER(nvmlDeviceGetPowerUsage, 70500)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, 700000)
OF_KIND(nvmlDeviceGetClockInfo, 210, 1755, 2619)
OF_KIND(nvmlDeviceGetMaxClockInfo, 1980, 1980, 2620)
OF_KIND(nvmlDeviceGetTemperature, 41)

int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor) { (void)gpu; *major = 9; *minor = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *gpu, Memory *into) { (void)gpu; *into = (Memory){85520809984u, 85516615680u, 4194304u}; return 0; }
int nvmlDeviceGetUtilizationRates(void *gpu, Load *into) { (void)gpu; *into = (Load){97, 12}; return 0; }
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *later) { (void)gpu; *now = *later = 0; return NOT_SUPPORTED; }

static int reasons(unsigned long long *into) { *into = 0x4; return 0; }

static int processes(unsigned *count, Process *into) {
    unsigned room = *count;
    *count = 2;
    if (!into || room < 2) return INSUFFICIENT_SIZE;
    into[0] = (Process){4242, 1u << 30, ~0u, ~0u};
    into[1] = (Process){4343, ~0ull, ~0u, ~0u};  // the driver does not say how much memory
    return 0;
}

int nvmlDeviceGetProcessUtilization(void *gpu, Sample *into, unsigned *count, unsigned long long since) {
    (void)gpu;
    unsigned room = *count;
    *count = 1;
    if (!into || room < 1) return INSUFFICIENT_SIZE;
    into[0] = (Sample){4242, since, 96, 12, 0, 0};
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v2(void *gpu, unsigned *n, Process *into) { (void)gpu; return processes(n, into); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *into) { (void)gpu; return reasons(into); }
#ifndef OLD
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *n, Process *into) { (void)gpu; return processes(n, into); }
int nvmlDeviceGetCurrentClocksEventReasons(void *gpu, unsigned long long *into) { (void)gpu; return reasons(into); }
#endif
