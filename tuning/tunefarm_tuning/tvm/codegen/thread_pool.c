/* The threads on which a network's kernels run, in place of TVM's own pool, as a part of the network's library.
 *
 * TVM's pool gives each thread its share of a kernel, and the caller waits for all of them. Where other processes want the cores, a
 * thread that does not run holds up each kernel for milliseconds. Here a thread takes shares that nobody has taken yet: first its own,
 * so that what it wrote last is in its cache, then those of the others. The caller never waits for a thread that has not begun.
 *
 * A share is taken by writing the number of the job (`epoch`) to the share's `taken`: from then on the job cannot end before that share
 * is computed, so what the job's fields hold stays as it is. A thread that comes late finds all shares taken.
 *
 * Threads that wait for a job spin for 1 ms, then sleep; after 2 s they end, and the next job starts them anew. (TVM never unloads a
 * library.) A thread whose clock jumped while it spun shares its core with something else: for a while threads sleep at once, and leave
 * the core to that. The caller does not sleep: it would lose its core for a whole time slice. A thread that slept and wakes on the
 * caller's core takes nothing of that job: it has interrupted the caller.
 *
 * `thread_pool.py` has the worker's LLVM compile a translation of this file, thread_pool.ll, for each machine. So it includes
 * no headers, and uses nothing whose size or value differs between Linux on 64-bit machines. Functions of the C library are weak: they
 * are those of the process that loads the library; without them the caller computes all shares.
 */

typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef struct {
  int type_index, zero;
  long value;
} Any; /* TVMFFIAny of tvm-ffi */
typedef struct {
  void *sync;
  int shares;
} Group; /* TVMParallelGroupEnv of TVM */
typedef int (*Share)(int number, Group *group, void *data);
typedef struct {
  long seconds, nanoseconds;
} Time;
typedef struct {
  _Alignas(64) char room[64];
} Semaphore; /* sem_t has 32 bytes */
typedef struct {
  _Alignas(64) uint32_t epoch;
} Taken;
enum { GONE, AWAKE, SLEEPS };
typedef struct {
  Semaphore wake;
  uint64_t thread;
  int state, is_joinable;
} Worker;

extern int pthread_create(uint64_t *, const void *, void *(*)(void *), void *) __attribute__((weak));
extern int pthread_join(uint64_t, void **) __attribute__((weak));
extern int sem_init(void *, int, unsigned) __attribute__((weak));
extern int sem_wait(void *) __attribute__((weak));
extern int sem_timedwait(void *, const Time *) __attribute__((weak));
extern int sem_post(void *) __attribute__((weak));
extern int clock_gettime(int, Time *) __attribute__((weak));
extern int sched_getcpu(void) __attribute__((weak));
extern int sched_getaffinity(int, uint64_t, uint64_t *) __attribute__((weak));
extern int usleep(unsigned) __attribute__((weak));
extern int getpid(void) __attribute__((weak));
extern char *getenv(const char *) __attribute__((weak));
extern const int tunefarm_threads_of_target; /* how many the network was tuned for; 0 if that is not known */
void tunefarm_pause(void);                   /* the machine's hint that a loop waits; both are added by `thread_pool.py` */

enum { MOST = 1024, REALTIME = 0, MONOTONIC = 1, INTEGER = 1, NONE = 0 };
static const long SPIN_CONTENDED_NS = 5000, JUMP_NS = 100000, CONTENDED_NS = 50000000, CALLER_SPINS_NS = 10000000, RETRY_NS = 1000000000, SLEEP_SEC = 2;
static const long TURN_NS = 500; /* of TVM's spinning, which TVM_THREAD_POOL_SPIN_COUNT counts */

static Worker workers[MOST];
static Taken taken[MOST];
static _Alignas(64) uint64_t job; /* epoch << 32 | number of shares */
static Share share;
static void *data;
static Group group;
static int caller_cpu;
static _Alignas(64) int unfinished;
static int has_failed;
static _Alignas(64) int busy;
static int has_begun, threads, owner, stopping;
static long spin_ns = 1000000, contended_until, start_after;

#define load(x, order) __atomic_load_n(&(x), __ATOMIC_##order)
#define store(x, value, order) __atomic_store_n(&(x), value, __ATOMIC_##order)
#define exchange(x, value) __atomic_exchange_n(&(x), value, __ATOMIC_SEQ_CST)

static long now(void) {
  Time time = {0, 0};
  clock_gettime(MONOTONIC, &time);
  return time.seconds * 1000000000L + time.nanoseconds;
}

static int change_state(Worker *worker, int from, int to) {
  return __atomic_compare_exchange_n(&worker->state, &from, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static int has_library(void) {
  return pthread_create && pthread_join && sem_init && sem_wait && sem_timedwait && sem_post && clock_gettime && sched_getcpu && usleep &&
         getpid;
}

/* Spin once; every 32 times return how long this has gone on, else 0. */
static long spin(uint32_t times, long *began, long *before) {
  tunefarm_pause();
  if (times % 32) return 0;
  long time = now();
  if (!*began) *began = time;
  else if (time - *before > JUMP_NS) store(contended_until, time + CONTENDED_NS, RELAXED);
  *before = time;
  return time - *began;
}

static void take_shares(uint64_t current, int first) {
  uint32_t epoch = current >> 32;
  int shares = (int)(uint32_t)current;
  for (int step = 0, number = first % shares; step < shares; ++step, number = number + 1 == shares ? 0 : number + 1) {
    uint32_t seen = load(taken[number].epoch, RELAXED);
    if ((int)(seen - epoch) >= 0) continue; /* of this job, or of a later one: this thread is late */
    if (!__atomic_compare_exchange_n(&taken[number].epoch, &seen, epoch, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) continue;
    if (share(number, &group, data)) store(has_failed, 1, RELAXED);
    __atomic_fetch_sub(&unfinished, 1, __ATOMIC_RELEASE);
  }
}

/* Sleep until there is another job; return whether there is none for so long that the worker, which is GONE then, ends. */
static int is_idle(Worker *worker, uint64_t last) {
  long end = now() + SLEEP_SEC * 1000000000L;
  store(worker->state, SLEEPS, SEQ_CST);
  if ((load(job, SEQ_CST) != last || load(stopping, SEQ_CST)) && change_state(worker, SLEEPS, AWAKE)) return 0;
  for (;;) {
    Time until = {0, 0};
    clock_gettime(REALTIME, &until);
    until.seconds += SLEEP_SEC;
    if (!sem_timedwait(&worker->wake, &until)) return 0;
    if (now() < end) continue; /* a signal interrupted it, or somebody set the clock */
    if (change_state(worker, SLEEPS, GONE)) return 1;
    while (sem_wait(&worker->wake)) continue; /* it is being woken */
    return 0;
  }
}

static void *work(void *argument) {
  Worker *worker = argument;
  int number = (int)(worker - workers);
  uint64_t last = 0, next;
  for (;;) {
    long began = 0, before = 0;
    int has_slept = 0;
    for (uint32_t times = 0; (next = load(job, ACQUIRE)) == last && !load(stopping, RELAXED); ++times) {
      long spun = spin(times, &began, &before);
      if (spun <= (before < load(contended_until, RELAXED) ? SPIN_CONTENDED_NS : spin_ns)) continue;
      if (is_idle(worker, last)) return 0;
      began = 0;
      has_slept = 1;
    }
    if (load(stopping, RELAXED)) return 0;
    last = next;
    if (!has_slept || sched_getcpu() != load(caller_cpu, RELAXED)) take_shares(next, number);
  }
}

static int start(Worker *worker) {
  if (worker->is_joinable) pthread_join(worker->thread, 0);
  worker->is_joinable = 0;
  store(worker->state, AWAKE, SEQ_CST);
  if (!sem_init(&worker->wake, 0, 0) && !pthread_create(&worker->thread, 0, work, worker)) worker->is_joinable = 1;
  else store(worker->state, GONE, SEQ_CST);
  return worker->is_joinable;
}

static int may_start(void) { return !start_after || now() > start_after; }

static void wake(Worker *worker) {
  if (load(worker->state, SEQ_CST) == SLEEPS && change_state(worker, SLEEPS, AWAKE)) sem_post(&worker->wake);
}

/* Return a number of the environment, below 10,000,000; -1 without it. */
static long setting(const char *name) {
  const char *text = getenv ? getenv(name) : 0;
  if (!text || *text < '0' || *text > '9') return -1;
  long number = 0;
  for (; *text >= '0' && *text <= '9'; ++text)
    if (number < 1000000) number = number * 10 + *text - '0';
  return number;
}

static int default_threads(void) {
  long count = setting("TVM_NUM_THREADS");
  if (count > 0) return count < MOST ? (int)count : MOST;
  count = 0;
  uint64_t mask[128] = {0};
  if (sched_getaffinity && sched_getaffinity(0, sizeof mask, mask) > -1)
    for (int word = 0; word < 128; ++word) count += __builtin_popcountl(mask[word]);
  if (!count || (tunefarm_threads_of_target && count > tunefarm_threads_of_target)) count = tunefarm_threads_of_target;
  return count < 1 ? 1 : count < MOST ? (int)count : MOST;
}

static void begin(void) {
  long turns = setting("TVM_THREAD_POOL_SPIN_COUNT");
  if (turns >= 0) spin_ns = turns * TURN_NS;
  if (!has_library()) threads = 1;
  else if (!threads) threads = default_threads();
  owner = getpid ? getpid() : 0;
  has_begun = 1;
}

static int launch_alone(Share wanted, void *arguments, int shares) {
  Group alone = {0, shares ? shares : 1};
  int code = 0;
  for (int number = 0; number < alone.shares && !code; ++number) code = wanted(number, &alone, arguments);
  return code;
}

static int launch(Share wanted, void *arguments, int shares) {
  /* Another thread of the process, or a kernel around this one, may have the workers. */
  if (load(busy, RELAXED) || exchange(busy, 1)) return launch_alone(wanted, arguments, shares);
  if (!has_begun) begin();
  if (threads < 2) {
    store(busy, 0, RELEASE);
    return launch_alone(wanted, arguments, shares);
  }
  if (!shares || shares > MOST) shares = threads;
  share = wanted;
  data = arguments;
  group.shares = shares;
  store(caller_cpu, sched_getcpu(), RELAXED);
  store(unfinished, shares, RELAXED);
  store(has_failed, 0, RELAXED);
  uint64_t current = ((job >> 32) + 1) << 32 | (uint32_t)shares;
  store(job, current, SEQ_CST);
  for (int number = 1; number < threads; ++number)
    if (load(workers[number].state, RELAXED) != GONE) wake(&workers[number]);
    else if (may_start() && !start(&workers[number])) start_after = now() + RETRY_NS; /* the system gives no more of them */
  take_shares(current, 0);
  long began = 0, before = 0;
  for (uint32_t times = 0; load(unfinished, ACQUIRE); ++times)
    if (spin(times, &began, &before) > CALLER_SPINS_NS) {
      usleep(100); /* an interrupted worker may need this core */
      before = now();
    }
  /* TVM keeps an error with the thread that raised it, so the caller tries all shares again. */
  int code = load(has_failed, RELAXED) ? launch_alone(share, data, shares) : 0;
  store(busy, 0, RELEASE);
  return code;
}

/* Stop the workers; in a forked process, which has none, forget them. */
__attribute__((destructor)) static void stop_workers(void) {
  if (!has_begun || !getpid) return;
  int are_here = owner == getpid();
  store(busy, 1, SEQ_CST); /* another thread may call while the process ends */
  store(stopping, 1, SEQ_CST);
  for (int number = 1; number < MOST; ++number) {
    if (are_here) wake(&workers[number]);
    if (are_here && workers[number].is_joinable) pthread_join(workers[number].thread, 0);
    workers[number].is_joinable = 0;
    workers[number].state = GONE;
  }
  store(stopping, 0, SEQ_CST);
}

/* Take a number of threads, and forget those of the process that this one was forked from. Nothing else may call the network. */
int __tvm_ffi_tunefarm_set_threads(void *self, const Any *arguments, int count, Any *result) {
  if (count == 1 && arguments[0].type_index == INTEGER) {
    stop_workers();
    for (int number = 0; number < MOST; ++number) taken[number].epoch = job >> 32;
    has_begun = 0;
    start_after = 0;
    threads = arguments[0].value < 1 ? 1 : arguments[0].value > MOST ? MOST : (int)arguments[0].value;
    store(busy, 0, RELEASE);
  }
  result->type_index = NONE;
  result->zero = 0;
  result->value = 0;
  return 0;
}

/* TVM's kernels call what this holds. It is hidden, so that TVM does not put its own pool there when it loads the library. */
__attribute__((visibility("hidden"))) int (*const __TVMBackendParallelLaunch)(Share, void *, int) = launch;
