; Generated from thread_pool.c by ziglang 0.17.1: change that file (thread_pool.py says how).

%struct.Worker = type { %struct.Semaphore, i64, i32, i32, [48 x i8] }
%struct.Semaphore = type { [64 x i8] }
%struct.Taken = type { i32, [60 x i8] }
%struct.Group = type { ptr, i32 }
%struct.Time = type { i64, i64 }

@has_begun = internal unnamed_addr global i1 false, align 4
@owner = internal unnamed_addr global i32 0, align 4
@busy = internal global i32 0, align 64
@stopping = internal unnamed_addr global i32 0, align 4
@workers = internal global [1024 x %struct.Worker] zeroinitializer, align 64
@job = internal unnamed_addr global i64 0, align 64
@taken = internal global [1024 x %struct.Taken] zeroinitializer, align 64
@start_after = internal unnamed_addr global i64 0, align 8
@threads = internal unnamed_addr global i32 0, align 4
@__TVMBackendParallelLaunch = hidden local_unnamed_addr constant ptr @launch, align 8
@share = internal unnamed_addr global ptr null, align 8
@data = internal unnamed_addr global ptr null, align 8
@group = internal global %struct.Group zeroinitializer, align 8
@caller_cpu = internal unnamed_addr global i32 0, align 4
@unfinished = internal global i32 0, align 64
@has_failed = internal unnamed_addr global i32 0, align 4
@.str = private unnamed_addr constant [27 x i8] c"TVM_THREAD_POOL_SPIN_COUNT\00", align 1
@spin_ns = internal unnamed_addr global i64 1000000, align 8
@.str.1 = private unnamed_addr constant [16 x i8] c"TVM_NUM_THREADS\00", align 1
@contended_until = internal unnamed_addr global i64 0, align 8
@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @stop_workers, ptr null }]

define internal void @stop_workers() {
  %1 = load i1, ptr @has_begun, align 4
  %2 = icmp ne ptr @getpid, null
  %3 = and i1 %2, %1
  br i1 %3, label %4, label %35

4:                                                ; preds = %0
  %5 = load i32, ptr @owner, align 4
  %6 = tail call i32 @getpid()
  %7 = icmp eq i32 %5, %6
  store atomic i32 1, ptr @busy seq_cst, align 64
  store atomic i32 1, ptr @stopping seq_cst, align 4
  br label %9

8:                                                ; preds = %29
  store atomic i32 0, ptr @stopping seq_cst, align 4
  br label %35

9:                                                ; preds = %4, %29
  %10 = phi i64 [ 1, %4 ], [ %33, %29 ]
  br i1 %7, label %11, label %29

11:                                               ; preds = %9
  %12 = getelementptr inbounds nuw %struct.Worker, ptr @workers, i64 %10
  %13 = getelementptr inbounds nuw i8, ptr %12, i64 72
  %14 = load atomic i32, ptr %13 seq_cst, align 8
  %15 = icmp eq i32 %14, 2
  br i1 %15, label %16, label %21

16:                                               ; preds = %11
  %17 = cmpxchg ptr %13, i32 2, i32 1 seq_cst seq_cst, align 8
  %18 = extractvalue { i32, i1 } %17, 1
  br i1 %18, label %19, label %21

19:                                               ; preds = %16
  %20 = tail call i32 @sem_post(ptr noundef nonnull %12)
  br label %21

21:                                               ; preds = %11, %16, %19
  %22 = getelementptr inbounds nuw i8, ptr %12, i64 76
  %23 = load i32, ptr %22, align 4
  %24 = icmp eq i32 %23, 0
  br i1 %24, label %29, label %25

25:                                               ; preds = %21
  %26 = getelementptr inbounds nuw i8, ptr %12, i64 64
  %27 = load i64, ptr %26, align 64
  %28 = tail call i32 @pthread_join(i64 noundef %27, ptr noundef null)
  br label %29

29:                                               ; preds = %9, %25, %21
  %30 = getelementptr inbounds nuw %struct.Worker, ptr @workers, i64 %10
  %31 = getelementptr inbounds nuw i8, ptr %30, i64 76
  store i32 0, ptr %31, align 4
  %32 = getelementptr inbounds nuw i8, ptr %30, i64 72
  store i32 0, ptr %32, align 8
  %33 = add nuw nsw i64 %10, 1
  %34 = icmp eq i64 %33, 1024
  br i1 %34, label %8, label %9

35:                                               ; preds = %0, %8
  ret void
}

declare extern_weak i32 @getpid()

declare void @llvm.lifetime.start.p0(ptr captures(none))

declare extern_weak i32 @pthread_join(i64 noundef, ptr noundef)

declare void @llvm.lifetime.end.p0(ptr captures(none))

define noundef i32 @__tvm_ffi_tunefarm_set_threads(ptr noundef readnone captures(none) %0, ptr noundef readonly captures(none) %1, i32 noundef %2, ptr noundef writeonly captures(none) %3) local_unnamed_addr {
  %5 = icmp eq i32 %2, 1
  br i1 %5, label %6, label %24

6:                                                ; preds = %4
  %7 = load i32, ptr %1, align 8
  %8 = icmp eq i32 %7, 1
  br i1 %8, label %9, label %24

9:                                                ; preds = %6
  tail call void @stop_workers()
  %10 = load i64, ptr @job, align 64
  %11 = lshr i64 %10, 32
  %12 = trunc nuw i64 %11 to i32
  br label %19

13:                                               ; preds = %19
  store i1 false, ptr @has_begun, align 4
  store i64 0, ptr @start_after, align 8
  %14 = getelementptr inbounds nuw i8, ptr %1, i64 8
  %15 = load i64, ptr %14, align 8
  %16 = tail call i64 @llvm.smax.i64(i64 %15, i64 1)
  %17 = tail call i64 @llvm.umin.i64(i64 %16, i64 1024)
  %18 = trunc nuw nsw i64 %17 to i32
  store i32 %18, ptr @threads, align 4
  store atomic i32 0, ptr @busy release, align 64
  br label %24

19:                                               ; preds = %9, %19
  %20 = phi i64 [ 0, %9 ], [ %22, %19 ]
  %21 = getelementptr inbounds nuw %struct.Taken, ptr @taken, i64 %20
  store i32 %12, ptr %21, align 64
  %22 = add nuw nsw i64 %20, 1
  %23 = icmp eq i64 %22, 1024
  br i1 %23, label %13, label %19

24:                                               ; preds = %13, %6, %4
  tail call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %3, i8 0, i64 16, i1 false)
  ret i32 0
}

define internal i32 @launch(ptr noundef %0, ptr noundef %1, i32 noundef %2) {
  %4 = alloca %struct.Group, align 8
  %5 = alloca %struct.Time, align 8
  %6 = alloca %struct.Time, align 8
  %7 = alloca %struct.Time, align 8
  %8 = alloca %struct.Group, align 8
  %9 = alloca [128 x i64], align 16
  %10 = alloca %struct.Group, align 8
  %11 = alloca i64, align 8
  %12 = alloca i64, align 8
  %13 = load atomic i32, ptr @busy monotonic, align 64
  %14 = icmp eq i32 %13, 0
  br i1 %14, label %15, label %18

15:                                               ; preds = %3
  %16 = atomicrmw xchg ptr @busy, i32 1 seq_cst, align 64
  %17 = icmp eq i32 %16, 0
  br i1 %17, label %33, label %18

18:                                               ; preds = %15, %3
  call void @llvm.lifetime.start.p0(ptr nonnull %10)
  store ptr null, ptr %10, align 8
  %19 = getelementptr inbounds nuw i8, ptr %10, i64 8
  %20 = tail call i32 @llvm.umax.i32(i32 %2, i32 1)
  store i32 %20, ptr %19, align 8
  %21 = getelementptr inbounds nuw i8, ptr %10, i64 12
  store i32 0, ptr %21, align 4
  %22 = icmp sgt i32 %20, 0
  br i1 %22, label %23, label %31

23:                                               ; preds = %18, %23
  %24 = phi i32 [ %26, %23 ], [ 0, %18 ]
  %25 = call i32 %0(i32 noundef %24, ptr noundef nonnull %10, ptr noundef %1)
  %26 = add nuw nsw i32 %24, 1
  %27 = load i32, ptr %19, align 8
  %28 = icmp slt i32 %26, %27
  %29 = icmp eq i32 %25, 0
  %30 = select i1 %28, i1 %29, i1 false
  br i1 %30, label %23, label %31

31:                                               ; preds = %23, %18
  %32 = phi i32 [ 0, %18 ], [ %25, %23 ]
  call void @llvm.lifetime.end.p0(ptr nonnull %10)
  br label %240

33:                                               ; preds = %15
  %34 = load i1, ptr @has_begun, align 4
  br i1 %34, label %108, label %35

35:                                               ; preds = %33
  %36 = tail call fastcc i64 @setting(ptr noundef nonnull @.str)
  %37 = icmp sgt i64 %36, -1
  br i1 %37, label %38, label %40

38:                                               ; preds = %35
  %39 = mul nuw nsw i64 %36, 500
  store i64 %39, ptr @spin_ns, align 8
  br label %40

40:                                               ; preds = %38, %35
  %41 = icmp ne ptr @pthread_create, null
  %42 = icmp ne ptr @pthread_join, null
  %43 = and i1 %41, %42
  %44 = icmp ne ptr @sem_init, null
  %45 = and i1 %44, %43
  %46 = icmp ne ptr @sem_wait, null
  %47 = and i1 %46, %45
  %48 = icmp ne ptr @sem_timedwait, null
  %49 = and i1 %48, %47
  %50 = icmp ne ptr @sem_post, null
  %51 = and i1 %50, %49
  %52 = icmp ne ptr @clock_gettime, null
  %53 = and i1 %52, %51
  %54 = icmp ne ptr @sched_getcpu, null
  %55 = and i1 %54, %53
  %56 = icmp ne ptr @usleep, null
  %57 = and i1 %56, %55
  %58 = icmp ne ptr @getpid, null
  %59 = and i1 %58, %57
  br i1 %59, label %60, label %100

60:                                               ; preds = %40
  %61 = load i32, ptr @threads, align 4
  %62 = icmp eq i32 %61, 0
  br i1 %62, label %63, label %102

63:                                               ; preds = %60
  %64 = tail call fastcc i64 @setting(ptr noundef nonnull @.str.1)
  %65 = icmp sgt i64 %64, 0
  br i1 %65, label %66, label %68

66:                                               ; preds = %63
  %67 = tail call i64 @llvm.umin.i64(i64 %64, i64 1024)
  br label %97

68:                                               ; preds = %63
  call void @llvm.lifetime.start.p0(ptr nonnull %9)
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 16 dereferenceable(1024) %9, i8 0, i64 1024, i1 false)
  %69 = icmp eq ptr @sched_getaffinity, null
  br i1 %69, label %90, label %70

70:                                               ; preds = %68
  %71 = call i32 @sched_getaffinity(i32 noundef 0, i64 noundef 1024, ptr noundef nonnull %9)
  %72 = icmp sgt i32 %71, -1
  br i1 %72, label %73, label %90

73:                                               ; preds = %70, %73
  %74 = phi i64 [ %80, %73 ], [ 0, %70 ]
  %75 = phi i64 [ %79, %73 ], [ 0, %70 ]
  %76 = getelementptr inbounds nuw i64, ptr %9, i64 %74
  %77 = load i64, ptr %76, align 8
  %78 = call range(i64 0, 65) i64 @llvm.ctpop.i64(i64 %77)
  %79 = add nuw nsw i64 %78, %75
  %80 = add nuw nsw i64 %74, 1
  %81 = icmp eq i64 %80, 128
  br i1 %81, label %82, label %73

82:                                               ; preds = %73
  %83 = icmp eq i64 %79, 0
  br i1 %83, label %90, label %84

84:                                               ; preds = %82
  %85 = load i32, ptr @tunefarm_threads_of_target, align 4
  %86 = icmp ne i32 %85, 0
  %87 = sext i32 %85 to i64
  %88 = icmp sgt i64 %79, %87
  %89 = and i1 %86, %88
  br i1 %89, label %90, label %93

90:                                               ; preds = %84, %82, %70, %68
  %91 = load i32, ptr @tunefarm_threads_of_target, align 4
  %92 = sext i32 %91 to i64
  br label %93

93:                                               ; preds = %90, %84
  %94 = phi i64 [ %92, %90 ], [ %79, %84 ]
  %95 = call i64 @llvm.smax.i64(i64 %94, i64 1)
  %96 = call i64 @llvm.umin.i64(i64 %95, i64 1024)
  call void @llvm.lifetime.end.p0(ptr nonnull %9)
  br label %97

97:                                               ; preds = %93, %66
  %98 = phi i64 [ %67, %66 ], [ %96, %93 ]
  %99 = trunc nuw nsw i64 %98 to i32
  br label %100

100:                                              ; preds = %97, %40
  %101 = phi i32 [ %99, %97 ], [ 1, %40 ]
  store i32 %101, ptr @threads, align 4
  br label %102

102:                                              ; preds = %100, %60
  %103 = icmp eq ptr @getpid, null
  br i1 %103, label %106, label %104

104:                                              ; preds = %102
  %105 = call i32 @getpid()
  br label %106

106:                                              ; preds = %102, %104
  %107 = phi i32 [ %105, %104 ], [ 0, %102 ]
  store i32 %107, ptr @owner, align 4
  store i1 true, ptr @has_begun, align 4
  br label %108

108:                                              ; preds = %106, %33
  %109 = load i32, ptr @threads, align 4
  %110 = icmp slt i32 %109, 2
  br i1 %110, label %111, label %126

111:                                              ; preds = %108
  store atomic i32 0, ptr @busy release, align 64
  call void @llvm.lifetime.start.p0(ptr nonnull %8)
  store ptr null, ptr %8, align 8
  %112 = getelementptr inbounds nuw i8, ptr %8, i64 8
  %113 = call i32 @llvm.umax.i32(i32 %2, i32 1)
  store i32 %113, ptr %112, align 8
  %114 = getelementptr inbounds nuw i8, ptr %8, i64 12
  store i32 0, ptr %114, align 4
  %115 = icmp sgt i32 %113, 0
  br i1 %115, label %116, label %124

116:                                              ; preds = %111, %116
  %117 = phi i32 [ %119, %116 ], [ 0, %111 ]
  %118 = call i32 %0(i32 noundef %117, ptr noundef nonnull %8, ptr noundef %1)
  %119 = add nuw nsw i32 %117, 1
  %120 = load i32, ptr %112, align 8
  %121 = icmp slt i32 %119, %120
  %122 = icmp eq i32 %118, 0
  %123 = select i1 %121, i1 %122, i1 false
  br i1 %123, label %116, label %124

124:                                              ; preds = %116, %111
  %125 = phi i32 [ 0, %111 ], [ %118, %116 ]
  call void @llvm.lifetime.end.p0(ptr nonnull %8)
  br label %240

126:                                              ; preds = %108
  %127 = icmp eq i32 %2, 0
  %128 = icmp sgt i32 %2, 1024
  %129 = or i1 %127, %128
  %130 = select i1 %129, i32 %109, i32 %2
  store ptr %0, ptr @share, align 8
  store ptr %1, ptr @data, align 8
  store i32 %130, ptr getelementptr inbounds nuw (i8, ptr @group, i64 8), align 8
  %131 = call i32 @sched_getcpu()
  store atomic i32 %131, ptr @caller_cpu monotonic, align 4
  store atomic i32 %130, ptr @unfinished monotonic, align 64
  store atomic i32 0, ptr @has_failed monotonic, align 4
  %132 = load i64, ptr @job, align 64
  %133 = and i64 %132, -4294967296
  %134 = add i64 %133, 4294967296
  %135 = zext i32 %130 to i64
  %136 = or disjoint i64 %134, %135
  store atomic i64 %136, ptr @job seq_cst, align 64
  %137 = load i32, ptr @threads, align 4
  %138 = icmp sgt i32 %137, 1
  br i1 %138, label %139, label %142

139:                                              ; preds = %126
  %140 = getelementptr inbounds nuw i8, ptr %7, i64 8
  %141 = getelementptr inbounds nuw i8, ptr %6, i64 8
  br label %147

142:                                              ; preds = %198, %126
  call fastcc void @take_shares(i64 noundef %136, i32 noundef 0)
  call void @llvm.lifetime.start.p0(ptr nonnull %11)
  store i64 0, ptr %11, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %12)
  store i64 0, ptr %12, align 8
  %143 = load atomic i32, ptr @unfinished acquire, align 64
  %144 = icmp eq i32 %143, 0
  br i1 %144, label %203, label %145

145:                                              ; preds = %142
  %146 = getelementptr inbounds nuw i8, ptr %5, i64 8
  br label %206

147:                                              ; preds = %139, %198
  %148 = phi i64 [ 1, %139 ], [ %199, %198 ]
  %149 = getelementptr inbounds nuw %struct.Worker, ptr @workers, i64 %148
  %150 = getelementptr inbounds nuw i8, ptr %149, i64 72
  %151 = load atomic i32, ptr %150 monotonic, align 8
  %152 = icmp eq i32 %151, 0
  br i1 %152, label %161, label %153

153:                                              ; preds = %147
  %154 = load atomic i32, ptr %150 seq_cst, align 8
  %155 = icmp eq i32 %154, 2
  br i1 %155, label %156, label %198

156:                                              ; preds = %153
  %157 = cmpxchg ptr %150, i32 2, i32 1 seq_cst seq_cst, align 8
  %158 = extractvalue { i32, i1 } %157, 1
  br i1 %158, label %159, label %198

159:                                              ; preds = %156
  %160 = call i32 @sem_post(ptr noundef nonnull %149)
  br label %198

161:                                              ; preds = %147
  %162 = load i64, ptr @start_after, align 8
  %163 = icmp eq i64 %162, 0
  br i1 %163, label %172, label %164

164:                                              ; preds = %161
  call void @llvm.lifetime.start.p0(ptr nonnull %7)
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %7, i8 0, i64 16, i1 false)
  %165 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %7)
  %166 = load i64, ptr %7, align 8
  %167 = mul nsw i64 %166, 1000000000
  %168 = load i64, ptr %140, align 8
  %169 = add nsw i64 %167, %168
  call void @llvm.lifetime.end.p0(ptr nonnull %7)
  %170 = load i64, ptr @start_after, align 8
  %171 = icmp sgt i64 %169, %170
  br i1 %171, label %172, label %198

172:                                              ; preds = %161, %164
  %173 = getelementptr inbounds nuw i8, ptr %149, i64 76
  %174 = load i32, ptr %173, align 4
  %175 = icmp eq i32 %174, 0
  br i1 %175, label %180, label %176

176:                                              ; preds = %172
  %177 = getelementptr inbounds nuw i8, ptr %149, i64 64
  %178 = load i64, ptr %177, align 64
  %179 = call i32 @pthread_join(i64 noundef %178, ptr noundef null)
  br label %180

180:                                              ; preds = %176, %172
  store i32 0, ptr %173, align 4
  store atomic i32 1, ptr %150 seq_cst, align 8
  %181 = call i32 @sem_init(ptr noundef nonnull %149, i32 noundef 0, i32 noundef 0)
  %182 = icmp eq i32 %181, 0
  br i1 %182, label %183, label %188

183:                                              ; preds = %180
  %184 = getelementptr inbounds nuw i8, ptr %149, i64 64
  %185 = call i32 @pthread_create(ptr noundef nonnull %184, ptr noundef null, ptr noundef nonnull @work, ptr noundef nonnull %149)
  %186 = icmp eq i32 %185, 0
  br i1 %186, label %187, label %188

187:                                              ; preds = %183
  store i32 1, ptr %173, align 4
  br label %198

188:                                              ; preds = %180, %183
  store atomic i32 0, ptr %150 seq_cst, align 8
  %189 = load i32, ptr %173, align 4
  %190 = icmp eq i32 %189, 0
  br i1 %190, label %191, label %198

191:                                              ; preds = %188
  call void @llvm.lifetime.start.p0(ptr nonnull %6)
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %6, i8 0, i64 16, i1 false)
  %192 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %6)
  %193 = load i64, ptr %6, align 8
  %194 = mul nsw i64 %193, 1000000000
  %195 = load i64, ptr %141, align 8
  call void @llvm.lifetime.end.p0(ptr nonnull %6)
  %196 = add i64 %195, 1000000000
  %197 = add i64 %196, %194
  store i64 %197, ptr @start_after, align 8
  br label %198

198:                                              ; preds = %187, %159, %156, %153, %191, %188, %164
  %199 = add nuw nsw i64 %148, 1
  %200 = load i32, ptr @threads, align 4
  %201 = sext i32 %200 to i64
  %202 = icmp slt i64 %199, %201
  br i1 %202, label %147, label %142

203:                                              ; preds = %217, %142
  %204 = load atomic i32, ptr @has_failed monotonic, align 4
  %205 = icmp eq i32 %204, 0
  br i1 %205, label %238, label %221

206:                                              ; preds = %145, %217
  %207 = phi i32 [ 0, %145 ], [ %218, %217 ]
  %208 = call fastcc i64 @spin(i32 noundef %207, ptr noundef %11, ptr noundef %12)
  %209 = icmp sgt i64 %208, 10000000
  br i1 %209, label %210, label %217

210:                                              ; preds = %206
  %211 = call i32 @usleep(i32 noundef 100)
  call void @llvm.lifetime.start.p0(ptr nonnull %5)
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %5, i8 0, i64 16, i1 false)
  %212 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %5)
  %213 = load i64, ptr %5, align 8
  %214 = mul nsw i64 %213, 1000000000
  %215 = load i64, ptr %146, align 8
  %216 = add nsw i64 %214, %215
  call void @llvm.lifetime.end.p0(ptr nonnull %5)
  store i64 %216, ptr %12, align 8
  br label %217

217:                                              ; preds = %206, %210
  %218 = add i32 %207, 1
  %219 = load atomic i32, ptr @unfinished acquire, align 64
  %220 = icmp eq i32 %219, 0
  br i1 %220, label %203, label %206

221:                                              ; preds = %203
  %222 = load ptr, ptr @share, align 8
  %223 = load ptr, ptr @data, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %4)
  store ptr null, ptr %4, align 8
  %224 = getelementptr inbounds nuw i8, ptr %4, i64 8
  %225 = call i32 @llvm.umax.i32(i32 %130, i32 1)
  store i32 %225, ptr %224, align 8
  %226 = getelementptr inbounds nuw i8, ptr %4, i64 12
  store i32 0, ptr %226, align 4
  %227 = icmp sgt i32 %225, 0
  br i1 %227, label %228, label %236

228:                                              ; preds = %221, %228
  %229 = phi i32 [ %231, %228 ], [ 0, %221 ]
  %230 = call i32 %222(i32 noundef %229, ptr noundef nonnull %4, ptr noundef %223)
  %231 = add nuw nsw i32 %229, 1
  %232 = load i32, ptr %224, align 8
  %233 = icmp slt i32 %231, %232
  %234 = icmp eq i32 %230, 0
  %235 = select i1 %233, i1 %234, i1 false
  br i1 %235, label %228, label %236

236:                                              ; preds = %228, %221
  %237 = phi i32 [ 0, %221 ], [ %230, %228 ]
  call void @llvm.lifetime.end.p0(ptr nonnull %4)
  br label %238

238:                                              ; preds = %203, %236
  %239 = phi i32 [ %237, %236 ], [ 0, %203 ]
  store atomic i32 0, ptr @busy release, align 64
  call void @llvm.lifetime.end.p0(ptr nonnull %12)
  call void @llvm.lifetime.end.p0(ptr nonnull %11)
  br label %240

240:                                              ; preds = %238, %124, %31
  %241 = phi i32 [ %32, %31 ], [ %125, %124 ], [ %239, %238 ]
  ret i32 %241
}

declare extern_weak i32 @sem_post(ptr noundef)

declare extern_weak i32 @sched_getcpu()

define internal fastcc void @take_shares(i64 noundef %0, i32 noundef %1) unnamed_addr {
  %3 = lshr i64 %0, 32
  %4 = trunc nuw i64 %3 to i32
  %5 = trunc i64 %0 to i32
  %6 = icmp sgt i32 %5, 0
  br i1 %6, label %7, label %9

7:                                                ; preds = %2
  %8 = srem i32 %1, %5
  br label %10

9:                                                ; preds = %29, %2
  ret void

10:                                               ; preds = %7, %29
  %11 = phi i32 [ %30, %29 ], [ 0, %7 ]
  %12 = phi i32 [ %33, %29 ], [ %8, %7 ]
  %13 = sext i32 %12 to i64
  %14 = getelementptr inbounds %struct.Taken, ptr @taken, i64 %13
  %15 = load atomic i32, ptr %14 monotonic, align 64
  %16 = sub i32 %15, %4
  %17 = icmp sgt i32 %16, -1
  br i1 %17, label %29, label %18

18:                                               ; preds = %10
  %19 = cmpxchg ptr %14, i32 %15, i32 %4 seq_cst monotonic, align 64
  %20 = extractvalue { i32, i1 } %19, 1
  br i1 %20, label %21, label %29

21:                                               ; preds = %18
  %22 = load ptr, ptr @share, align 8
  %23 = load ptr, ptr @data, align 8
  %24 = tail call i32 %22(i32 noundef %12, ptr noundef nonnull @group, ptr noundef %23)
  %25 = icmp eq i32 %24, 0
  br i1 %25, label %27, label %26

26:                                               ; preds = %21
  store atomic i32 1, ptr @has_failed monotonic, align 4
  br label %27

27:                                               ; preds = %26, %21
  %28 = atomicrmw sub ptr @unfinished, i32 1 release, align 64
  br label %29

29:                                               ; preds = %18, %10, %27
  %30 = add nuw nsw i32 %11, 1
  %31 = add nsw i32 %12, 1
  %32 = icmp eq i32 %31, %5
  %33 = select i1 %32, i32 0, i32 %31
  %34 = icmp eq i32 %30, %5
  br i1 %34, label %9, label %10
}

define internal fastcc i64 @spin(i32 noundef %0, ptr noundef nonnull captures(none) %1, ptr noundef nonnull captures(none) %2) unnamed_addr {
  %4 = alloca %struct.Time, align 8
  tail call void @tunefarm_pause()
  %5 = and i32 %0, 31
  %6 = icmp eq i32 %5, 0
  br i1 %6, label %7, label %26

7:                                                ; preds = %3
  call void @llvm.lifetime.start.p0(ptr nonnull %4)
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %4, i8 0, i64 16, i1 false)
  %8 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %4)
  %9 = load i64, ptr %4, align 8
  %10 = mul nsw i64 %9, 1000000000
  %11 = getelementptr inbounds nuw i8, ptr %4, i64 8
  %12 = load i64, ptr %11, align 8
  %13 = add nsw i64 %10, %12
  call void @llvm.lifetime.end.p0(ptr nonnull %4)
  %14 = load i64, ptr %1, align 8
  %15 = icmp eq i64 %14, 0
  br i1 %15, label %16, label %17

16:                                               ; preds = %7
  store i64 %13, ptr %1, align 8
  br label %23

17:                                               ; preds = %7
  %18 = load i64, ptr %2, align 8
  %19 = sub nsw i64 %13, %18
  %20 = icmp sgt i64 %19, 100000
  br i1 %20, label %21, label %23

21:                                               ; preds = %17
  %22 = add nsw i64 %13, 50000000
  store atomic i64 %22, ptr @contended_until monotonic, align 8
  br label %23

23:                                               ; preds = %17, %21, %16
  store i64 %13, ptr %2, align 8
  %24 = load i64, ptr %1, align 8
  %25 = sub nsw i64 %13, %24
  br label %26

26:                                               ; preds = %3, %23
  %27 = phi i64 [ %25, %23 ], [ 0, %3 ]
  ret i64 %27
}

declare extern_weak i32 @usleep(i32 noundef)

declare void @llvm.memset.p0.i64(ptr writeonly captures(none), i8, i64, i1 immarg)

define internal fastcc i64 @setting(ptr noundef readonly captures(none) %0) unnamed_addr {
  %2 = icmp eq ptr @getenv, null
  br i1 %2, label %24, label %3

3:                                                ; preds = %1
  %4 = tail call ptr @getenv(ptr noundef %0)
  %5 = icmp eq ptr %4, null
  br i1 %5, label %24, label %6

6:                                                ; preds = %3
  %7 = load i8, ptr %4, align 1
  %8 = add i8 %7, -58
  %9 = icmp ult i8 %8, -10
  br i1 %9, label %24, label %10

10:                                               ; preds = %6, %10
  %11 = phi i8 [ %21, %10 ], [ %7, %6 ]
  %12 = phi i64 [ %19, %10 ], [ 0, %6 ]
  %13 = phi ptr [ %20, %10 ], [ %4, %6 ]
  %14 = icmp slt i64 %12, 1000000
  %15 = mul nsw i64 %12, 10
  %16 = zext nneg i8 %11 to i64
  %17 = add i64 %15, -48
  %18 = add i64 %17, %16
  %19 = select i1 %14, i64 %18, i64 %12
  %20 = getelementptr inbounds nuw i8, ptr %13, i64 1
  %21 = load i8, ptr %20, align 1
  %22 = add i8 %21, -48
  %23 = icmp ult i8 %22, 10
  br i1 %23, label %10, label %24

24:                                               ; preds = %10, %1, %3, %6
  %25 = phi i64 [ -1, %3 ], [ -1, %6 ], [ -1, %1 ], [ %19, %10 ]
  ret i64 %25
}

declare extern_weak noundef ptr @getenv(ptr noundef captures(none))

declare extern_weak i32 @pthread_create(ptr noundef, ptr noundef, ptr noundef, ptr noundef)

declare extern_weak i32 @sem_init(ptr noundef, i32 noundef, i32 noundef)

declare extern_weak i32 @sem_wait(ptr noundef)

declare extern_weak i32 @sem_timedwait(ptr noundef, ptr noundef)

declare extern_weak i32 @clock_gettime(i32 noundef, ptr noundef)

declare extern_weak i32 @sched_getaffinity(i32 noundef, i64 noundef, ptr noundef)

declare i64 @llvm.ctpop.i64(i64)

define internal noalias noundef ptr @work(ptr noundef %0) {
  %2 = alloca %struct.Time, align 8
  %3 = alloca %struct.Time, align 8
  %4 = alloca %struct.Time, align 8
  %5 = alloca i64, align 8
  %6 = alloca i64, align 8
  %7 = ptrtoint ptr %0 to i64
  %8 = sub i64 %7, ptrtoint (ptr @workers to i64)
  %9 = lshr exact i64 %8, 7
  %10 = trunc i64 %9 to i32
  %11 = getelementptr inbounds nuw i8, ptr %3, i64 8
  %12 = getelementptr inbounds nuw i8, ptr %0, i64 72
  %13 = getelementptr inbounds nuw i8, ptr %2, i64 8
  br label %14

14:                                               ; preds = %95, %1
  %15 = phi i64 [ 0, %1 ], [ %96, %95 ]
  call void @llvm.lifetime.start.p0(ptr nonnull %5)
  store i64 0, ptr %5, align 8
  call void @llvm.lifetime.start.p0(ptr nonnull %6)
  store i64 0, ptr %6, align 8
  %16 = load atomic i64, ptr @job acquire, align 64
  %17 = icmp eq i64 %16, %15
  br i1 %17, label %18, label %84

18:                                               ; preds = %14, %73
  %19 = phi i32 [ %74, %73 ], [ 0, %14 ]
  %20 = phi i32 [ %75, %73 ], [ 0, %14 ]
  %21 = load atomic i32, ptr @stopping monotonic, align 4
  %22 = icmp eq i32 %21, 0
  br i1 %22, label %23, label %79

23:                                               ; preds = %18
  %24 = call fastcc i64 @spin(i32 noundef %20, ptr noundef %5, ptr noundef %6)
  %25 = load i64, ptr %6, align 8
  %26 = load atomic i64, ptr @contended_until monotonic, align 8
  %27 = icmp slt i64 %25, %26
  %28 = load i64, ptr @spin_ns, align 8
  %29 = select i1 %27, i64 5000, i64 %28
  %30 = icmp sgt i64 %24, %29
  br i1 %30, label %31, label %73

31:                                               ; preds = %23
  call void @llvm.lifetime.start.p0(ptr nonnull %3)
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %3, i8 0, i64 16, i1 false)
  %32 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %3)
  %33 = load i64, ptr %3, align 8
  %34 = mul nsw i64 %33, 1000000000
  %35 = load i64, ptr %11, align 8
  call void @llvm.lifetime.end.p0(ptr nonnull %3)
  %36 = add i64 %35, 2000000000
  %37 = add i64 %36, %34
  store atomic i32 2, ptr %12 seq_cst, align 8
  %38 = load atomic i64, ptr @job seq_cst, align 64
  %39 = icmp eq i64 %38, %15
  br i1 %39, label %40, label %43

40:                                               ; preds = %31
  %41 = load atomic i32, ptr @stopping seq_cst, align 4
  %42 = icmp eq i32 %41, 0
  br i1 %42, label %46, label %43

43:                                               ; preds = %40, %31
  %44 = cmpxchg ptr %12, i32 2, i32 1 seq_cst seq_cst, align 8
  %45 = extractvalue { i32, i1 } %44, 1
  br i1 %45, label %72, label %46

46:                                               ; preds = %43, %40
  call void @llvm.lifetime.start.p0(ptr nonnull %4)
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %4, i8 0, i64 16, i1 false)
  %47 = call i32 @clock_gettime(i32 noundef 0, ptr noundef nonnull %4)
  %48 = load i64, ptr %4, align 8
  %49 = add nsw i64 %48, 2
  store i64 %49, ptr %4, align 8
  %50 = call i32 @sem_timedwait(ptr noundef nonnull %0, ptr noundef nonnull %4)
  %51 = icmp eq i32 %50, 0
  br i1 %51, label %71, label %52

52:                                               ; preds = %46, %65
  call void @llvm.lifetime.start.p0(ptr nonnull %2)
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %2, i8 0, i64 16, i1 false)
  %53 = call i32 @clock_gettime(i32 noundef 1, ptr noundef nonnull %2)
  %54 = load i64, ptr %2, align 8
  %55 = mul nsw i64 %54, 1000000000
  %56 = load i64, ptr %13, align 8
  %57 = add nsw i64 %55, %56
  call void @llvm.lifetime.end.p0(ptr nonnull %2)
  %58 = icmp slt i64 %57, %37
  br i1 %58, label %65, label %59

59:                                               ; preds = %52
  %60 = cmpxchg ptr %12, i32 2, i32 0 seq_cst seq_cst, align 8
  %61 = extractvalue { i32, i1 } %60, 1
  br i1 %61, label %78, label %62

62:                                               ; preds = %59, %62
  %63 = call i32 @sem_wait(ptr noundef nonnull %0)
  %64 = icmp eq i32 %63, 0
  br i1 %64, label %71, label %62

65:                                               ; preds = %52
  call void @llvm.lifetime.end.p0(ptr nonnull %4)
  call void @llvm.lifetime.start.p0(ptr nonnull %4)
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 8 dereferenceable(16) %4, i8 0, i64 16, i1 false)
  %66 = call i32 @clock_gettime(i32 noundef 0, ptr noundef nonnull %4)
  %67 = load i64, ptr %4, align 8
  %68 = add nsw i64 %67, 2
  store i64 %68, ptr %4, align 8
  %69 = call i32 @sem_timedwait(ptr noundef nonnull %0, ptr noundef nonnull %4)
  %70 = icmp eq i32 %69, 0
  br i1 %70, label %71, label %52

71:                                               ; preds = %65, %62, %46
  call void @llvm.lifetime.end.p0(ptr nonnull %4)
  br label %72

72:                                               ; preds = %43, %71
  store i64 0, ptr %5, align 8
  br label %73

73:                                               ; preds = %72, %23
  %74 = phi i32 [ %19, %23 ], [ 1, %72 ]
  %75 = add i32 %20, 1
  %76 = load atomic i64, ptr @job acquire, align 64
  %77 = icmp eq i64 %76, %15
  br i1 %77, label %18, label %79

78:                                               ; preds = %59
  call void @llvm.lifetime.end.p0(ptr nonnull %4)
  br label %97

79:                                               ; preds = %18, %73
  %80 = phi i32 [ %19, %18 ], [ %74, %73 ]
  %81 = phi i64 [ %15, %18 ], [ %76, %73 ]
  %82 = load atomic i32, ptr @stopping monotonic, align 4
  %83 = icmp eq i32 %82, 0
  br i1 %83, label %87, label %97

84:                                               ; preds = %14
  %85 = load atomic i32, ptr @stopping monotonic, align 4
  %86 = icmp eq i32 %85, 0
  br i1 %86, label %93, label %97

87:                                               ; preds = %79
  %88 = icmp eq i32 %80, 0
  br i1 %88, label %93, label %89

89:                                               ; preds = %87
  %90 = call i32 @sched_getcpu()
  %91 = load atomic i32, ptr @caller_cpu monotonic, align 4
  %92 = icmp eq i32 %90, %91
  br i1 %92, label %95, label %93

93:                                               ; preds = %84, %89, %87
  %94 = phi i64 [ %81, %87 ], [ %81, %89 ], [ %16, %84 ]
  call fastcc void @take_shares(i64 noundef %94, i32 noundef %10)
  br label %95

95:                                               ; preds = %89, %93
  %96 = phi i64 [ %81, %89 ], [ %94, %93 ]
  call void @llvm.lifetime.end.p0(ptr nonnull %6)
  call void @llvm.lifetime.end.p0(ptr nonnull %5)
  br label %14

97:                                               ; preds = %79, %84, %78
  call void @llvm.lifetime.end.p0(ptr nonnull %6)
  call void @llvm.lifetime.end.p0(ptr nonnull %5)
  ret ptr null
}

declare i32 @llvm.umax.i32(i32, i32)

declare i64 @llvm.smax.i64(i64, i64)

declare i64 @llvm.umin.i64(i64, i64)
