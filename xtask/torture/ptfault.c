/* ptfault: run a command and act at the K-th file-system call that touches PREFIX.
 *
 *   ptfault -p PREFIX [-n K] [-a ACTION] [-e ERRNO] [-x HOOK] [-o TRACE] -- COMMAND...
 *
 * One index counts over all threads and children. A seccomp filter stops only the calls in the table below, and of
 * these only those count whose path or descriptor lies under PREFIX, so the loader and libc are not in the way. Calls
 * that have neither (threads, pipes, rings, random bytes) count from the first one on that lies there.
 *
 *   count        list the calls and do nothing (default)
 *   error        do not run call K, return -ERRNO
 *   error-from   the same for K and every call under PREFIX after it: the disk is gone
 *   error-same   the same for K and every later call of its name
 *   error-write  the same for K and every later call that writes, makes or syncs: the disk is full or read-only
 *   zero         do not run call K, return 0
 *   short        halve the byte count of call K: a true short read or write
 *   kill-before  SIGKILL before call K
 *   kill-after   SIGKILL once call K has taken effect
 *   hook         run HOOK by sh while the whole process is stopped at call K, then go on
 *
 * Exit: the command's status, 128+signal if it was killed; 250 when call K was never reached; 251 and 252 when the
 * filter could not be set or the command not started. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef __x86_64__
#error "ptfault knows the registers of x86-64 only"
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#define SYS_io_uring_register 427
#endif

enum kind { FD, PATH, AT, ANYWHERE };

/* `arg` is the descriptor (FD) or the path (PATH; AT has its directory one before); `count` is the byte count or -1;
 * `writes` says that it changes or syncs something */
struct call {
  int number;
  const char *name;
  enum kind kind;
  int arg, count, writes;
};
#define CALL(name, kind, arg, count) { SYS_##name, #name, kind, arg, count, 0 }
#define WRITE(name, kind, arg, count) { SYS_##name, #name, kind, arg, count, 1 }
static const struct call calls[] = {
  CALL(read, FD, 0, 2), CALL(pread64, FD, 0, 2), CALL(readv, FD, 0, -1), CALL(preadv, FD, 0, -1),
  WRITE(write, FD, 0, 2), WRITE(pwrite64, FD, 0, 2), WRITE(writev, FD, 0, -1), WRITE(pwritev, FD, 0, -1),
  WRITE(pwritev2, FD, 0, -1), WRITE(copy_file_range, FD, 2, 4), WRITE(sendfile, FD, 0, 3), WRITE(splice, FD, 2, 4),
  WRITE(ioctl, FD, 0, -1), WRITE(fsync, FD, 0, -1), WRITE(fdatasync, FD, 0, -1), WRITE(syncfs, FD, 0, -1),
  WRITE(sync_file_range, FD, 0, -1), CALL(close, FD, 0, -1), WRITE(ftruncate, FD, 0, -1), WRITE(fallocate, FD, 0, -1),
  CALL(fadvise64, FD, 0, -1), CALL(lseek, FD, 0, -1), CALL(flock, FD, 0, -1), WRITE(fchmod, FD, 0, -1),
  WRITE(fchown, FD, 0, -1), WRITE(fsetxattr, FD, 0, -1), CALL(fgetxattr, FD, 0, -1), CALL(flistxattr, FD, 0, -1),
  WRITE(fremovexattr, FD, 0, -1), CALL(fstat, FD, 0, -1), CALL(getdents64, FD, 0, -1), CALL(fchdir, FD, 0, -1),
  CALL(fstatfs, FD, 0, -1), CALL(open, PATH, 0, -1), WRITE(creat, PATH, 0, -1), CALL(stat, PATH, 0, -1),
  CALL(lstat, PATH, 0, -1), CALL(access, PATH, 0, -1), CALL(readlink, PATH, 0, -1), WRITE(mkdir, PATH, 0, -1),
  WRITE(rmdir, PATH, 0, -1), WRITE(unlink, PATH, 0, -1), WRITE(rename, PATH, 1, -1), WRITE(link, PATH, 1, -1),
  WRITE(symlink, PATH, 1, -1), WRITE(chmod, PATH, 0, -1), WRITE(chown, PATH, 0, -1), WRITE(lchown, PATH, 0, -1),
  WRITE(truncate, PATH, 0, -1), WRITE(mknod, PATH, 0, -1), CALL(statfs, PATH, 0, -1), WRITE(setxattr, PATH, 0, -1),
  WRITE(lsetxattr, PATH, 0, -1), CALL(getxattr, PATH, 0, -1), CALL(lgetxattr, PATH, 0, -1),
  CALL(listxattr, PATH, 0, -1), CALL(llistxattr, PATH, 0, -1), WRITE(removexattr, PATH, 0, -1),
  WRITE(lremovexattr, PATH, 0, -1), CALL(openat, AT, 1, -1), CALL(openat2, AT, 1, -1), CALL(newfstatat, AT, 1, -1),
  CALL(statx, AT, 1, -1), CALL(faccessat, AT, 1, -1), CALL(faccessat2, AT, 1, -1), CALL(readlinkat, AT, 1, -1),
  WRITE(mkdirat, AT, 1, -1), WRITE(unlinkat, AT, 1, -1), WRITE(renameat, AT, 3, -1), WRITE(renameat2, AT, 3, -1),
  WRITE(linkat, AT, 3, -1), WRITE(symlinkat, AT, 2, -1), WRITE(fchmodat, AT, 1, -1), WRITE(fchmodat2, AT, 1, -1),
  WRITE(fchownat, AT, 1, -1), WRITE(utimensat, AT, 1, -1), WRITE(mknodat, AT, 1, -1), CALL(fcntl, FD, 0, -1),
  CALL(tee, FD, 0, 2), CALL(io_uring_setup, ANYWHERE, 0, -1), CALL(io_uring_register, ANYWHERE, 0, -1),
  CALL(clone, ANYWHERE, 0, -1), CALL(clone3, ANYWHERE, 0, -1), CALL(pipe2, ANYWHERE, 0, -1),
  CALL(getrandom, ANYWHERE, 0, -1), CALL(memfd_create, ANYWHERE, 0, -1), WRITE(io_uring_enter, ANYWHERE, 0, -1),
};
enum { CALLS = sizeof calls / sizeof *calls, NUMBERS = 512 };
_Static_assert(CALLS < 250, "a jump of the filter is one byte");
static const struct call *by_number[NUMBERS];
static const char *prefix = "/";

static unsigned long long *argument(struct user_regs_struct *r, int i) {
  switch (i) {
  case 0: return &r->rdi;
  case 1: return &r->rsi;
  case 2: return &r->rdx;
  case 3: return &r->r10;
  case 4: return &r->r8;
  default: return &r->r9;
  }
}

/* A string of the stopped process, page by page, as the next page may not be there. */
static void read_string(pid_t pid, unsigned long at, char *out, size_t size) {
  size_t done = 0;
  while (at && done < size - 1) {
    size_t want = 4096 - ((at + done) & 4095);
    if (want > size - 1 - done) want = size - 1 - done;
    struct iovec here = { out + done, want }, there = { (void *)(at + done), want };
    ssize_t got = process_vm_readv(pid, &here, 1, &there, 1, 0);
    if (got <= 0) break;
    if (memchr(out + done, 0, got)) return;
    done += got;
  }
  out[done] = 0;
}

static void descriptor_path(pid_t pid, int fd, char *out, size_t size) {
  char name[64];
  if (fd == AT_FDCWD) snprintf(name, sizeof name, "/proc/%d/cwd", pid);
  else snprintf(name, sizeof name, "/proc/%d/fd/%d", pid, fd);
  ssize_t n = readlink(name, out, size - 1);
  out[n < 0 ? 0 : n] = 0;
}

static int touches_prefix(pid_t pid, const struct call *call, struct user_regs_struct *r, char *out, size_t size) {
  static int begun;
  char path[PATH_MAX], dir[PATH_MAX];
  if (call->kind == ANYWHERE) {
    snprintf(out, size, "-");
    return begun;
  }
  if (call->kind == FD) descriptor_path(pid, (int)*argument(r, call->arg), out, size);
  else {
    read_string(pid, *argument(r, call->arg), path, sizeof path);
    if (path[0] == '/') snprintf(out, size, "%s", path);
    else {
      descriptor_path(pid, call->kind == AT ? (int)*argument(r, call->arg - 1) : AT_FDCWD, dir, sizeof dir);
      snprintf(out, size, "%s/%s", dir, path);
    }
  }
  int below = strncmp(out, prefix, strlen(prefix)) == 0;
  begun |= below;
  return below;
}

/* Whether a call after the K-th has its fate. */
static int follows(const char *action, const struct call *call, const struct call *first, struct user_regs_struct *r) {
  if (!strcmp(action, "error-from")) return call->kind != ANYWHERE;
  if (!strcmp(action, "error-same")) return call == first;
  int creates = call->number == SYS_openat && (*argument(r, 2) & O_CREAT);
  return !strcmp(action, "error-write") && (call->writes || creates);
}

/* Whether a kernel that runs gives that answer: nothing done is one of calls that count bytes. */
static int may_fail_so(const struct call *call, const char *action, int error) {
  int zero = !strcmp(action, "zero"), fails = !strncmp(action, "error", 5);
  if (call->number == SYS_getrandom)
    return !zero && (!fails || error == ENOSYS || error == EINTR);
  /* "There are no attributes" is an answer that a tool can only believe. */
  if (call->number == SYS_flistxattr || call->number == SYS_fgetxattr)
    return !zero && !(fails && (error == ENOTSUP || error == ENODATA));
  return !zero || call->count >= 0;
}

static void child(char **command) {
  struct sock_filter filter[CALLS + 3];
  int n = 0;
  filter[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (int i = 0; i < CALLS; i++)
    filter[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, CALLS - i, 0);
  filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
  struct sock_fprog program = { n, filter };
  ptrace(PTRACE_TRACEME, 0, 0, 0);
  raise(SIGSTOP);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) {
    perror("ptfault: seccomp");
    _exit(251);
  }
  execvp(command[0], command);
  perror("ptfault: exec");
  _exit(252);
}

int main(int argc, char **argv) {
  long target = -1, index = 0;
  const char *action = "count", *hook = NULL, *trace_name = NULL;
  int error = EIO, option;
  while ((option = getopt(argc, argv, "+p:n:a:e:x:o:")) != -1) switch (option) {
    case 'p': prefix = optarg; break;
    case 'n': target = atol(optarg); break;
    case 'a': action = optarg; break;
    case 'e': error = atoi(optarg); break;
    case 'x': hook = optarg; break;
    case 'o': trace_name = optarg; break;
    default: return 2;
  }
  if (optind >= argc) return 2;
  FILE *trace = trace_name ? fopen(trace_name, "w") : NULL;
  for (int i = 0; i < CALLS; i++) by_number[calls[i].number] = &calls[i];
  pid_t leader = fork();
  if (leader < 0) return 2;
  if (!leader) child(argv + optind);
  int status, hit = 0, result = 0;
  waitpid(leader, &status, 0);
  ptrace(PTRACE_SETOPTIONS, leader, 0, PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
         PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
  ptrace(PTRACE_CONT, leader, 0, 0);
  pid_t kill_at_exit_of = 0;
  const struct call *first = NULL;
  static char path[PATH_MAX * 2 + 2];
  for (;;) {
    pid_t pid = waitpid(-1, &status, __WALL);
    if (pid < 0) break;
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (pid == leader) result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      continue;
    }
    int sig = WSTOPSIG(status), event = status >> 16, pass = 0;
    if (sig == (SIGTRAP | 0x80)) {
      if (pid == kill_at_exit_of) kill(leader, SIGKILL);
    } else if (event == PTRACE_EVENT_SECCOMP) {
      struct user_regs_struct regs;
      ptrace(PTRACE_GETREGS, pid, 0, &regs);
      const struct call *call = regs.orig_rax < NUMBERS ? by_number[regs.orig_rax] : NULL;
      if (call && touches_prefix(pid, call, &regs, path, sizeof path)) {
        index++;
        if (trace) fprintf(trace, "%ld %s %s\n", index, call->name, path);
        /* Threads take turns as they like: the next call is meant where this one cannot fail so. */
        if (index == target && !may_fail_so(call, action, error)) target++;
        if (index == target) first = call;
        if (index == target || (hit && follows(action, call, first, &regs))) {
          hit = 1;
          int zero = !strcmp(action, "zero");
          if (zero || !strncmp(action, "error", 5)) {
            regs.orig_rax = -1;
            regs.rax = zero ? 0 : -error;
            ptrace(PTRACE_SETREGS, pid, 0, &regs);
          } else if (!strcmp(action, "short") && call->count >= 0 && *argument(&regs, call->count) > 1) {
            *argument(&regs, call->count) /= 2;
            ptrace(PTRACE_SETREGS, pid, 0, &regs);
          } else if (!strcmp(action, "kill-before")) {
            kill(leader, SIGKILL);
          } else if (!strcmp(action, "kill-after")) {
            kill_at_exit_of = pid;
            ptrace(PTRACE_SYSCALL, pid, 0, 0);
            continue;
          } else if (!strcmp(action, "hook") && hook && system(hook) == -1) {
            perror("ptfault: hook");
          }
        }
      }
    } else if (!event && sig != SIGSTOP) {
      pass = sig; /* a signal of its own; SIGSTOP is how a new thread begins */
    }
    ptrace(PTRACE_CONT, pid, 0, pass);
  }
  if (trace) fclose(trace);
  return target > 0 && !hit ? 250 : result;
}
