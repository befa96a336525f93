// CUDA's driver, of one GPU, for who asks it which that is: functions as the driver's API has them.
#include <string.h>

static const unsigned char uuid[16] = {0, 0, 0, 0, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0x12, 0x34, 0x56, 0x78};

int cuInit(unsigned flags) { return flags ? 1 : 0; }
int cuDeviceGet(int *gpu, int number) { *gpu = 7; return number ? 101 : 0; }
int cuDeviceGetUuid(unsigned char *into, int gpu) { memcpy(into, uuid, 16); return gpu == 7 ? 0 : 101; }
