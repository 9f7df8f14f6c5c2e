// The planned files of a read for Spark, compiled by Janino (see _planned_index.py), which knows neither lambdas nor
// most of generics, and of whose private methods reflection sees nothing.

import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.FilePartition$;
import org.apache.spark.sql.execution.datasources.FileStatusWithMetadata;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.ArraySeq$;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;

/** What Python asks for, in one call: each would take as long as a small read. */
public final class TarnlogScans implements Runnable {
    static final Map NONE = (Map) Map$.MODULE$.empty();
    /**
     * Options of the reader, as READ_OPTIONS of _scanning.py: tables have the proleptic Gregorian calendar, and a
     * missing or damaged file is an error, whatever the session's settings are.
     */
    static final Map OPTIONS =
        with(
            with(with(with(NONE, "datetimeRebaseMode", "CORRECTED"), "int96RebaseMode", "CORRECTED"),
                "ignoreMissingFiles", "false"),
            "ignoreCorruptFiles", "false");
    private boolean knowsDates;

    /** The rows of the files in a list; see TarnlogPlannedFiles. */
    public Dataset rows(SparkSession spark, String schema, String root, String begin, String list, int count)
            throws Exception {
        TarnlogPlannedFiles files =
            new TarnlogPlannedFiles(new Path(new URI(root)), new TarnlogFile[0], begin, list, count);
        if (!knowsDates && (schema.contains("\"date\"") || schema.contains("\"timestamp\""))) {
            knowsDates = true;
            background(this).start();
        }
        return rowsOf(spark, files, (StructType) DataType.fromJson(schema));
    }

    /**
     * The rows of the files of an older scan but for some, whose places are ascending, and of those in a list. Null
     * where that scan is not one of ours.
     */
    public Dataset changed(
            SparkSession spark, HadoopFsRelation older, byte[] gone, String begin, String list, int count)
            throws Exception {
        if (!(older.location() instanceof TarnlogPlannedFiles)) return null;
        TarnlogPlannedFiles before = (TarnlogPlannedFiles) older.location();
        TarnlogPlannedFiles files =
            new TarnlogPlannedFiles(before.root, before.without(gone), begin, list, count);
        return rowsOf(spark, files, older.dataSchema());
    }

    static Map with(Map options, String key, String value) {
        return (Map) options.$plus(new Tuple2(key, value));
    }

    static Dataset rowsOf(SparkSession spark, TarnlogPlannedFiles files, StructType columns) {
        HadoopFsRelation relation =
            new HadoopFsRelation(files, new StructType(), columns, Option.empty(), files.format, OPTIONS, spark);
        return spark.baseRelationToDataFrame(relation);
    }

    /** Loads Spark's tables of calendars, which it needs for the first date in a filter, and takes a while to read. */
    public void run() {
        try {
            Class.forName("org.apache.spark.sql.catalyst.util.RebaseDateTime$");
        } catch (Throwable error) {
            // Whoever needs them will be told.
        }
    }

    static Thread background(Runnable work) {
        Thread thread = new Thread(work, "tarnlog-planned-files");
        thread.setDaemon(true);
        return thread;
    }
}

/** The files: where they are, how large and how old. Their paths are made in the background while Spark goes on. */
public final class TarnlogPlannedFiles implements FileIndex, Runnable {
    private static final int BLOCK = 2048;
    private static final int MOST_THREADS = 4;
    final TarnlogParquet format;
    final Path root;
    private final int first;
    private final String begin;
    private final TarnlogFile[] files;
    private final Thread[] threads;
    private final AtomicInteger next = new AtomicInteger();
    private byte[] list;
    private int[] ends;
    private volatile Throwable failed;

    /**
     * Some files that have their paths, and those of a list. It holds the sizes of so many files, their times, the
     * lengths of their URIs, and these without what all of them begin with. Numbers are as this machine writes them.
     */
    TarnlogPlannedFiles(Path root, TarnlogFile[] known, String begin, String list, int count) throws Exception {
        this.root = root;
        this.begin = begin;
        this.list = Files.readAllBytes(Paths.get(list));
        this.ends = new int[count + 1];
        this.first = known.length;
        this.files = new TarnlogFile[first + count];
        System.arraycopy(known, 0, files, 0, first);
        ByteBuffer numbers = ByteBuffer.wrap(this.list).order(ByteOrder.nativeOrder());
        long total = 0;
        for (int i = 0; i < first; i++) total += known[i].size;
        ends[0] = 20 * count;
        for (int i = 0; i < count; i++) {
            long size = numbers.getLong(8 * i);
            files[first + i] = new TarnlogFile(size, numbers.getLong(8 * (count + i)));
            ends[i + 1] = ends[i] + numbers.getInt(16 * count + 4 * i);
            total += size;
        }
        if (ends[count] != this.list.length) throw new IllegalArgumentException("the list is not one of " + count);
        this.format = new TarnlogParquet(total);
        this.threads = new Thread[Math.min(count / BLOCK, Math.min(MOST_THREADS, processors()))];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = TarnlogScans.background(this);
            threads[i].start();
        }
        if (threads.length == 0) run();
    }

    private static int processors() { return Runtime.getRuntime().availableProcessors(); }

    /** Makes paths, as long as there are files that nobody makes one for. */
    public void run() {
        try {
            int count = files.length - first;
            for (int start = next.getAndAdd(BLOCK); start < count; start = next.getAndAdd(BLOCK)) {
                int end = Math.min(start + BLOCK, count);
                for (int i = start; i < end; i++) {
                    String rest = new String(list, ends[i], ends[i + 1] - ends[i], StandardCharsets.US_ASCII);
                    TarnlogFile file = files[first + i];
                    file.path = new TarnlogPath(new URI(begin.concat(rest)), file.size);
                }
            }
        } catch (Throwable error) {
            failed = error;
        }
    }

    private TarnlogFile[] ready() {
        try {
            for (int i = 0; i < threads.length; i++) threads[i].join();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while the planned files were listed", error);
        }
        if (failed != null) throw new IllegalStateException("the planned files cannot be listed", failed);
        list = null;
        ends = null;
        return files;
    }

    /** These files but for those at some places, ascending numbers of four bytes as this machine writes them. */
    TarnlogFile[] without(byte[] gone) {
        TarnlogFile[] all = ready();
        ByteBuffer places = ByteBuffer.wrap(gone).order(ByteOrder.nativeOrder());
        TarnlogFile[] left = new TarnlogFile[all.length - gone.length / 4];
        int from = 0, to = 0;
        for (int i = 0; i <= gone.length / 4; i++) {
            int end = i < gone.length / 4 ? places.getInt(4 * i) : all.length;
            System.arraycopy(all, from, left, to, end - from);
            to += end - from;
            from = end + 1;
        }
        return left;
    }

    /** Files in one folder without partition values, as Spark takes them: the columns are in the files. */
    static Seq folder(TarnlogFile[] files) {
        return seq(new PartitionDirectory[] {new PartitionDirectory(InternalRow.empty(), seq(files))});
    }

    private static Seq seq(Object[] items) { return (Seq) ArraySeq$.MODULE$.unsafeWrapArray(items); }

    public Seq rootPaths() { return seq(new Path[] {root}); }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        format.planAnew();
        return folder(ready());
    }

    public String[] inputFiles() {
        TarnlogFile[] all = ready();
        String[] found = new String[all.length];
        for (int i = 0; i < all.length; i++) found[i] = all[i].path.toUri().toString();
        return found;
    }

    /** A version does not change. */
    public void refresh() {}

    public long sizeInBytes() { return format.bytes; }

    public StructType partitionSchema() { return new StructType(); }
}

/** One of them, without the dozen fields of a status, which it makes for whoever asks. */
public final class TarnlogFile extends FileStatusWithMetadata {
    private static final FsPermission PERMISSION = FsPermission.getFileDefault();
    final long size;
    private final long time;
    Path path;

    TarnlogFile(long size, long time) {
        super(null, TarnlogScans.NONE);
        this.size = size;
        this.time = time;
    }

    public FileStatus fileStatus() {
        return new FileStatus(size, false, 1, 134217728L, time, 0L, PERMISSION, null, null, path);
    }

    public Path getPath() { return path; }

    public long getLen() { return size; }

    public long getModificationTime() { return time; }

    public boolean isDirectory() { return false; }
}

/** A path that knows how large its file is. */
final class TarnlogPath extends Path {
    final long size;

    TarnlogPath(URI uri, long size) {
        super(uri);
        this.size = size;
    }
}

/**
 * Spark's own Parquet. Asked of a file whether it may be split, that reads all of its options anew. So it is asked only
 * of files that are larger than a split: for the others the answer changes nothing.
 */
final class TarnlogParquet extends ParquetFileFormat {
    final long bytes;
    private volatile long split;

    TarnlogParquet(long bytes) { this.bytes = bytes; }

    /** How large splits are is a setting of the session, which may have changed since the last plan. */
    void planAnew() { split = 0; }

    public boolean isSplitable(SparkSession spark, Map options, Path path) {
        long size = path instanceof TarnlogPath ? ((TarnlogPath) path).size : 0;
        if (size > 0 && size <= leastSplit(spark)) return false;
        return super.isSplitable(spark, options, path);
    }

    /** The size of splits as Spark makes them of one file with the bytes of all: of many, they are no smaller. */
    private long leastSplit(SparkSession spark) {
        long known = split;
        if (known == 0) {
            TarnlogFile[] one = new TarnlogFile[] {new TarnlogFile(bytes, 0)};
            split = known = FilePartition$.MODULE$.maxSplitBytes(spark, TarnlogPlannedFiles.folder(one));
        }
        return known;
    }

    /** In tasks, which do not know this class, it is Spark's. */
    protected Object writeReplace() { return new ParquetFileFormat(); }
}
