import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.zip.CRC32;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/** Native memory in several threads: direct buffers, zlib streams, short threads, collections in between. */
public final class Churn {
    private static long work(long seed, int turns) throws Exception {
        ByteBuffer[] kept = new ByteBuffer[200];
        CRC32 checksum = new CRC32();
        for (int turn = 1; turn <= turns; turn++) {
            for (int i = 0; i < 40; i++) {
                seed = (seed * 1103515245L + 12345) & 0x7fffffffL;
                int slot = (int) (seed >> 8) % kept.length;
                if (kept[slot] != null) {
                    checksum.update(kept[slot].flip());
                }
                int bytes = 1 + (int) (seed >> 12) % 20000;
                kept[slot] = ByteBuffer.allocateDirect(bytes);
                for (int at = 0; at < bytes; at += 64) {
                    kept[slot].put((byte) seed);
                }
            }
            byte[] text = ("turn " + turn + " ").repeat(500).getBytes();
            byte[] packed = new byte[text.length];
            Deflater deflater = new Deflater(1 + turn % 9);
            deflater.setInput(text);
            deflater.finish();
            int packedBytes = deflater.deflate(packed);
            deflater.end();
            Inflater inflater = new Inflater();
            inflater.setInput(packed, 0, packedBytes);
            byte[] again = new byte[text.length];
            int againBytes = inflater.inflate(again);
            inflater.end();
            checksum.update(again, 0, againBytes);
            if (turn % 100 == 0) {
                System.gc();
            }
        }
        return checksum.getValue();
    }

    public static void main(String[] arguments) throws Exception {
        int turns = Integer.parseInt(arguments[0]);
        ExecutorService pool = Executors.newFixedThreadPool(4);
        List<Future<Long>> answers = new ArrayList<>();
        for (int task = 0; task < 8; task++) {
            long seed = task + 1;
            Callable<Long> callable = () -> work(seed, turns);
            answers.add(pool.submit(callable));
        }
        for (int task = 0; task < answers.size(); task++) {
            System.out.println("task " + task + " " + Long.toHexString(answers.get(task).get()));
        }
        pool.shutdown();
        long[] counted = new long[1];
        for (int generation = 0; generation < 20; generation++) {
            List<Thread> threads = new ArrayList<>();
            for (int index = 0; index < 20; index++) {
                Thread thread = new Thread(() -> {
                    ByteBuffer buffer = ByteBuffer.allocateDirect(4096);
                    synchronized (counted) {
                        counted[0] += buffer.capacity();
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
        }
        System.out.println("short threads " + counted[0]);
    }
}
