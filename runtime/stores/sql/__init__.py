"""What stores in a database share, whichever that is: SQL, rows, the queue of what is written.

connection     how SQL is asked, and where databases differ
addresses, rows, reader, store_reader, intake, writer    the tables, as hubbub uses them
tables, whole_copy    how a store goes into another database as it is
queued_store   what is submitted, written in batches, and reported
"""
